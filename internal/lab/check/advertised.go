package check

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// advertised has a UE ask for routers by its device until the kernel has an address of the prefix
// there, which it makes of a router advertisement (RFC 4862 section 5.5.3).
func advertised(ctx context.Context, r *disturb.Runner, c *topology.Check, _ *report.Outcome) error {
	n := r.Node(c.From)
	send := probe.Discovery{
		From: r.Namespace(n), Device: c.Device, To: netip.MustParseAddr("ff02::2"), Octets: probe.RouterSolicitation, Count: 1,
	}
	return instance.Await(ctx, instance.ReadyTime, func() error {
		var links []struct {
			Addresses []struct {
				Local netip.Addr `json:"local"`
			} `json:"addr_info"`
		}
		if err := network.JSON(r.Instance, n, &links, "-6", "address", "show", "dev", c.Device); err != nil {
			return err
		}
		for _, l := range links {
			for _, x := range l.Addresses {
				if c.Prefix.Contains(x.Local) {
					return nil
				}
			}
		}
		if err := send.Send(ctx); err != nil {
			return err
		}
		return fmt.Errorf("%s of %s has no address of %v: no router advertisement of it came", c.Device, c.From, c.Prefix)
	})
}
