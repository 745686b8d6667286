package netdev

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// LoadConntrack has the kernel load its connection tracking where that is a module
// that nothing has needed yet.
func LoadConntrack() error {
	if _, err := os.Stat("/sys/module/nf_conntrack"); err == nil {
		return nil
	}
	return ruleOfConntrack()
}

// ruleOfConntrack makes a rule that asks for a flow's state, for which the kernel
// loads what it needs from wherever its modules are, also if that is outside of this
// container. The rule goes in the transaction that it comes in.
func ruleOfConntrack() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Name: natTable + "-conntrack", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "load", Table: table})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Register: 1, Key: expr.CtKeySTATE}}})
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
