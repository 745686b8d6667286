package gtpu_test

import (
	"fmt"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/srv6"
)

func ExampleParseHeader() {
	container := gtpu.PDUSessionContainer{Type: srv6.ContainerDownlink, QFI: 9, RQI: true}
	packet, err := gtpu.AppendGPDU(nil, 0x123, container, []byte("T-PDU"))
	if err != nil {
		fmt.Println(err)
		return
	}
	h, ok := gtpu.ParseHeader(packet)
	if !ok {
		fmt.Println("not GTP-U")
		return
	}
	c, _ := h.Container()
	fmt.Printf("%s, TEID %#x, QFI %d, RQI %v, %s\n", h.Type(), h.TEID(), c.QFI, c.RQI, h.Payload())
	// Output: G-PDU, TEID 0x123, QFI 9, RQI true, T-PDU
}
