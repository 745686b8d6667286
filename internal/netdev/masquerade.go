package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// natTable is our own table of nftables, one in each family, and natChain its chain.
const (
	natTable = "culvert"
	natChain = "postrouting"
)

// mostElements is how many elements of a set go into one message: an attribute
// of netlink ends at 64 KiB.
const mostElements = 500

// nat is what differs between the families.
type nat struct {
	family              nftables.TableFamily
	key                 nftables.SetDatatype
	bits                int
	source, destination uint32 // where they are in the IP header
}

var nats = []nat{
	{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 32, 12, 16},
	{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 128, 8, 24},
}

// Masquerade gives what pods send to outside of cluster the address of the
// interface that it leaves by. Without pods it undoes that. What pods send to a node of
// the cluster goes by the tunnel, from the pod. What a Service leads there, the kernel
// sends by the underlay, which need not carry pods' addresses: it gets the node's.
func (h *Host) Masquerade(pods, cluster []netip.Prefix) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for _, n := range nats {
		if err := n.replace(c, n.only(pods), n.only(cluster)); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	return nil
}

// Masquerades says whether what Masquerade made for pods is there. Whoever flushes the ruleset
// removes it.
func (h *Host) Masquerades(pods []netip.Prefix) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("nftables: %w", err)
	}
	for _, n := range nats {
		if len(n.only(pods)) == 0 {
			continue
		}
		rules, err := c.GetRules(&nftables.Table{Name: natTable, Family: n.family}, &nftables.Chain{Name: natChain})
		if err != nil {
			return false, fmt.Errorf("nftables: list the rules of %s: %w", natTable, err)
		}
		if len(rules) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// only are those of the family, without those that lie in others.
func (n nat) only(prefixes []netip.Prefix) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().BitLen() == n.bits {
			own = append(own, p.Masked())
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range own {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// replace makes the table anew, in one transaction: no packet meets a half of it.
func (n nat) replace(c *nftables.Conn, pods, cluster []netip.Prefix) error {
	if len(pods) == 0 {
		c.DelTable(&nftables.Table{Name: natTable, Family: n.family})
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	table := c.AddTable(&nftables.Table{Name: natTable, Family: n.family})
	c.DelTable(table) // one that is there; there is one now, for certain
	table = c.AddTable(table)
	from, err := n.set(c, table, "pods", pods)
	if err != nil {
		return err
	}
	within, err := n.set(c, table, "cluster", cluster)
	if err != nil {
		return err
	}
	chain := c.AddChain(&nftables.Chain{Name: natChain, Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	for _, exprs := range [][]expr.Any{n.leaves(from, within), append(n.leaves(from, from), byService()...)} {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(exprs, &expr.Masq{})})
	}
	return c.Flush()
}

// leaves matches what comes from a set and goes to outside of another one.
func (n nat) leaves(from, within *nftables.Set) []expr.Any {
	return []expr.Any{
		n.load(n.source), &expr.Lookup{SourceRegister: 1, SetName: from.Name, SetID: from.ID},
		n.load(n.destination), &expr.Lookup{SourceRegister: 1, SetName: within.Name, SetID: within.ID, Invert: true},
	}
}

// byService matches what got another destination here, and leaves by another interface than
// culvert0. Fragments for a node come here without a Service, too. They may be an answer, which
// has to come from the pod.
func byService() []expr.Any {
	const destinationNAT = 1 << 5 // IPS_DST_NAT
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, EntryName)
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, destinationNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: name},
	}
}

func (n nat) load(offset uint32) *expr.Payload {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(n.bits / 8)}
}

func (n nat) set(c *nftables.Conn, table *nftables.Table, name string, prefixes []netip.Prefix) (*nftables.Set, error) {
	s := &nftables.Set{Table: table, Name: name, KeyType: n.key, Interval: true}
	if err := c.AddSet(s, nil); err != nil {
		return nil, err
	}
	var elements []nftables.SetElement
	for _, p := range prefixes {
		elements = append(elements, nftables.SetElement{Key: p.Addr().AsSlice()})
		last := p.Addr().AsSlice()
		for bit := p.Bits(); bit < n.bits; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		a, _ := netip.AddrFromSlice(last)
		if behind := a.Next(); behind.IsValid() {
			elements = append(elements, nftables.SetElement{Key: behind.AsSlice(), IntervalEnd: true})
		}
	}
	for chunk := range slices.Chunk(elements, mostElements) {
		if err := c.SetAddElements(s, chunk); err != nil {
			return nil, err
		}
	}
	return s, nil
}
