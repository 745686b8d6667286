package disturb

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/probe"
)

// solicit has a UE ask for routers by its device until the kernel has an address of the prefix
// there, which it makes of a router advertisement (RFC 4862 section 5.5.3).
func solicit(ctx context.Context, a action) error {
	send := probe.Discovery{
		From: a.Namespace(a.node), Device: a.event.Device, To: netip.MustParseAddr("ff02::2"), Octets: probe.RouterSolicitation, Count: 1,
	}
	return instance.Await(ctx, a.event.For.Or(instance.ReadyTime), func() error {
		var links []struct {
			Addresses []struct {
				Local netip.Addr `json:"local"`
			} `json:"addr_info"`
		}
		if err := network.JSON(a.Instance, a.node, &links, "-6", "address", "show", "dev", a.event.Device); err != nil {
			return err
		}
		for _, l := range links {
			for _, x := range l.Addresses {
				if a.event.Prefix.Contains(x.Local) {
					return nil
				}
			}
		}
		if err := send.Send(ctx); err != nil {
			return err
		}
		return fmt.Errorf("%s of %s has no address of %v: no router advertisement of it came", a.event.Device, a.event.Node, a.event.Prefix)
	})
}
