package srv6_test

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// What a G-PDU to 10.99.0.2 with TEID 0x123 and QFI 5 becomes at H.M.GTP4.D,
// and what End.M.GTP4.E at the tail end reads from it.
func ExampleGTP4SID() {
	locator := netip.MustParsePrefix("2001:db8::/32")
	sid, err := srv6.GTP4SID(locator, netip.MustParseAddr("10.99.0.2"), srv6.ArgsMobSession{QFI: 5, TEID: 0x123})
	if err != nil {
		fmt.Println(err)
		return
	}
	dst, args, _ := srv6.ParseGTP4SID(sid, locator.Bits())
	fmt.Println(sid)
	fmt.Printf("%s, TEID %#x, QFI %d\n", dst, args.TEID, args.QFI)
	// Output:
	// 2001:db8:a63:2:1400:1:2300:0
	// 10.99.0.2, TEID 0x123, QFI 5
}

func ExampleLocalSID_Validate() {
	sid := srv6.LocalSID{SID: netip.MustParsePrefix("2001:db8:4e::/64"), Behavior: srv6.EndMGTP4E}
	for _, err := range sid.Validate() {
		fmt.Println(err)
	}
	// Output:
	// source_prefix_length: is missing: End.M.GTP4.E needs it: give how many bits of the IPv6 source stand before the IPv4 source (1 to 96)
	// sid: LOC:FUNC of 64 bits leaves no room for the argument of End.M.GTP4.E: give a prefix of at most 56 bits
}
