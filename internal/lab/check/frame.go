package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/probe"
)

// frame sends frames that a topology describes, and looks for them.
func frame(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	layers, err := layersOf(r, c.Frame)
	if err != nil {
		return err
	}
	device := c.Device
	if device == "" {
		device = mainDevice(r, r.Node(c.From))
	}
	ethernet, err := link(r, c, device)
	if err != nil {
		return err
	}
	if said, ok := layers[0].(packet.Ethernet); ok {
		if said.Dst == nil {
			said.Dst = ethernet.Dst
		}
		if said.Src == nil {
			said.Src = ethernet.Src
		}
		ethernet, layers = said, layers[1:]
	}
	var rest []byte // a payload that is described, in front of the data
	if inner, ok := last(layers).(packet.Payload); ok {
		rest, layers = packet.Frame(inner), layers[:len(layers)-1]
	}
	p := probe.Frames{From: r.Namespace(r.Node(c.From)), Device: device, At: r.Namespace(r.Node(c.At)), Port: c.Port, Count: max(c.Count, 1), Wait: AnswerTime,
		Frame: func(data []byte) []byte {
			return packet.Frame(append(append(packet.Layers{ethernet}, layers...), packet.Payload{Data: append(slices.Clone(rest), data...)})...)
		}}
	if c.Expect.Nothing {
		p.Wait = AnswerTime / 3
	}
	result, err := p.Run(ctx)
	if err != nil {
		return err
	}
	o.Sent, o.Received = result.Sent, result.Received
	wantAll(o, &c.Expect)
	return nil
}

// layersOf reads layers, with addresses in the place of names.
func layersOf(r *disturb.Runner, described []map[string]any) (layers packet.Layers, err error) {
	text, err := json.Marshal(described)
	if err != nil {
		return nil, err
	}
	var unknown error
	text = topology.AddressNames.ReplaceAllFunc(text, func(name []byte) []byte {
		m := topology.AddressNames.FindSubmatch(name)
		a, err := r.Address(string(m[1]), string(m[2]))
		unknown = errors.Join(unknown, err)
		return []byte(a.String())
	})
	if unknown != nil {
		return nil, unknown
	}
	if err := json.Unmarshal(text, &layers); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	return layers, nil
}

// mainDevice is a pod's interface, or a node's first.
func mainDevice(r *disturb.Runner, n *topology.Node) string {
	if n.Kind == topology.Pod {
		return topology.PodInterface
	}
	return r.Devices(n)[0] // it has one: validated
}

// link has the MACs of the sender and of who is next: the node of a pod, or the one that the
// check says.
func link(r *disturb.Runner, c *topology.Check, device string) (e packet.Ethernet, err error) {
	if e.Src, err = macOf(r, r.Node(c.From), device); err != nil {
		return e, err
	}
	if c.Next != "" {
		next := r.Node(c.Next)
		e.Dst, err = macOf(r, next, cmp.Or(c.NextDevice, mainDevice(r, next)))
		return e, err
	}
	var list []struct {
		MAC string `json:"lladdr"`
	}
	if err := network.JSON(r.Instance, r.Node(c.From), &list, "neighbour", "show", "dev", device, "nud", "permanent"); err != nil {
		return e, err
	}
	if len(list) == 0 {
		return e, fmt.Errorf("%s knows no neighbour by %s: say who is next", c.From, device)
	}
	mac, err := net.ParseMAC(list[0].MAC)
	e.Dst = packet.Hex(mac)
	return e, err
}

// macOf is the MAC of a device.
func macOf(r *disturb.Runner, n *topology.Node, device string) (packet.Hex, error) {
	var list []struct {
		MAC string `json:"address"`
	}
	if err := network.JSON(r.Instance, n, &list, "link", "show", "dev", device); err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(list[0].MAC)
	return packet.Hex(mac), err
}

// last is the innermost layer, or nil.
func last(layers packet.Layers) packet.Layer {
	if len(layers) == 0 {
		return nil
	}
	return layers[len(layers)-1]
}
