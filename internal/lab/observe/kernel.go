package observe

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kernelCounters reads what the kernel of a node counts.
func kernelCounters(r *instance.Instance, n *topology.Node) (v nodeView, err error) {
	v = nodeView{Sids: map[string]counterView{}, named: map[string]counterView{}}
	if n.HasSIDs() {
		if err := seg6localCounters(r, n, v.Sids); err != nil {
			return v, err
		}
	}
	if strings.Contains(n.NFT, "counter ") {
		err = nftCounters(r, n, v.named)
	}
	return v, err
}

func seg6localCounters(r *instance.Instance, n *topology.Node, into map[string]counterView) error {
	out, err := r.Namespace(n).Output("ip", "-6", "-j", "-s", "route", "show")
	if err != nil {
		return err
	}
	var routes []struct {
		Destination string      `json:"dst"`
		Encap       string      `json:"encap"`
		Stats       counterView `json:"stats64"`
	}
	if err := json.Unmarshal(out, &routes); err != nil {
		return fmt.Errorf("ip route shows %q: %w", out, err)
	}
	for _, route := range routes {
		if route.Encap == "seg6local" {
			into[route.Destination] = route.Stats
		}
	}
	return nil
}

func nftCounters(r *instance.Instance, n *topology.Node, into map[string]counterView) error {
	out, err := r.Namespace(n).Output("nft", "-j", "list", "counters")
	if err != nil {
		return err
	}
	var list struct {
		NFTables []struct {
			Counter struct {
				Name string `json:"name"`
				counterView
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("nft shows %q: %w", out, err)
	}
	for _, item := range list.NFTables {
		into[item.Counter.Name] = item.Counter.counterView
	}
	return nil
}
