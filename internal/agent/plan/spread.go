package plan

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/netdev"
)

// Spread is how packets come to several CPUs.
type Spread struct {
	spread.Config
	Method string // of the configuration
	Cards  []Card // which are to do it, or whose packets the data path spreads
}

// Card is that of an interface.
type Card struct {
	Name  string
	Index int
	// Users says that packets of UEs come by it, or others that can be spread.
	Users bool
	Mode  string // of the configuration, in which the data path is attached
	// Flows are the G-PDUs that come by it, if any do.
	Flows []netdev.FlowType
}

// spreadOf names the cards that are there: others are told when they come.
func spreadOf(c *config.Config, links *netdev.Snapshot) Spread {
	out := Spread{Config: spread.Config{CPUs: c.Spread.CPUs}, Method: cmp.Or(c.Spread.Method, config.SpreadAuto)}
	switch c.Spread.By {
	case config.SpreadUE:
		out.By = spread.UE
	case config.SpreadFlow:
		// No card sees the flows inside of tunnels.
		out.By, out.Method = spread.Flow, config.SpreadXDP
	}
	if out.By == spread.Off {
		return out
	}
	for i := range c.Interfaces {
		in := &c.Interfaces[i]
		l, ok := links.Link(in.Name)
		if !ok {
			continue
		}
		card := Card{Name: in.Name, Index: l.Index, Mode: in.Mode}
		card.Users = slices.ContainsFunc(in.Roles, func(role config.Role) bool { return role != config.RoleN4 })
		if in.HasRole(config.RoleN3, config.RoleN9) {
			card.Flows = netdev.FlowsOf5G(c.GTPU.Addresses)
		}
		out.Cards = append(out.Cards, card)
	}
	return out
}
