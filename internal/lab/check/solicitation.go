package check

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// solicitation sends router solicitations of a UE, by a GTP-U link, and wants them at
// the SMF without PDU Session Container, which an SMF refuses; and then router
// advertisements of the SMF at the UE. Kernels send some of their own.
func solicitation(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	allNodes, allRouters := netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff02::2")
	count := max(c.Count, 1)
	for _, way := range []struct {
		from, at, device, atDevice string
		to                         netip.Addr
		octets                     []byte
		kind                       string
	}{
		{c.From, c.At, c.Device, c.AtDevice, allRouters, probe.RouterSolicitation, "router solicitations"},
		{c.At, c.From, c.AtDevice, c.Device, allNodes, probe.RouterAdvertisement, "router advertisements"},
	} {
		before, err := linkStats(r, way.at, way.atDevice)
		if err != nil {
			return err
		}
		send := probe.Discovery{From: r.Namespace(r.Node(way.from)), Device: way.device, To: way.to, Octets: way.octets, Count: count}
		if err := send.Send(ctx); err != nil {
			return err
		}
		var after gtpulink.LinkStats
		instance.WaitFor(AnswerTime, func() bool {
			after, err = linkStats(r, way.at, way.atDevice)
			return err != nil || after.Received-before.Received >= uint64(count)
		})
		if err != nil {
			return err
		}
		o.Sent += count
		o.Received += min(count, int(after.Received-before.Received))
		if way.at == c.At && after.Containers != before.Containers {
			o.Fail("%d PDU Session Containers with %s at %s", after.Containers-before.Containers, way.kind, way.at)
		}
		o.Say("%d %s at %s", after.Received-before.Received, way.kind, way.at)
	}
	wantAll(o, &topology.Expect{})
	return nil
}

// linkStats are the counters of a GTP-U link.
func linkStats(r *disturb.Runner, node, device string) (gtpulink.LinkStats, error) {
	response, err := daemon.AskEndpoint(r.Instance, r.Node(node), gtpulink.Request{Op: "Stats"})
	if err != nil {
		return gtpulink.LinkStats{}, err
	}
	stats, ok := response.Stats.Links[device]
	if !ok {
		return stats, fmt.Errorf("%s has no GTP-U link %q", node, device)
	}
	return stats, nil
}
