package observe

import (
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kernelCounters reads what the kernel of a node counts: at SIDs whose routes say
// so, and in the named counters of nft.
func kernelCounters(in *instance.Instance, n *topology.Node) (Node, error) {
	v := newNode()
	if n.HasSIDs() {
		var routes []struct {
			Destination string  `json:"dst"`
			Encap       string  `json:"encap"`
			Stats       packets `json:"stats64"`
		}
		if err := network.JSON(in, n, &routes, "-6", "-s", "route", "show"); err != nil {
			return v, err
		}
		for _, r := range routes {
			if r.Encap == "seg6local" {
				v.Packets[SID][r.Destination] = r.Stats.Packets
			}
		}
	}
	if !strings.Contains(n.NFT, "counter ") {
		return v, nil
	}
	var list struct {
		NFTables []struct {
			Counter struct {
				Name string `json:"name"`
				packets
			} `json:"counter"`
		} `json:"nftables"`
	}
	err := in.Namespace(n).JSON(&list, "nft", "-j", "list", "counters")
	for _, item := range list.NFTables {
		v.Packets[NFT][item.Counter.Name] = item.Counter.Packets
	}
	return v, err
}
