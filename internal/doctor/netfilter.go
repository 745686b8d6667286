package doctor

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/netdev"
)

// podDevices is how the names of the host's ends of pods begin, and that of netdev.EntryName.
const podDevices = "culv"

// forwardChains: what goes to Services and to outside passes the hook that forwards. Docker and ufw
// have it drop what no rule accepts. Legacy tables of iptables are not seen here.
func forwardChains(host *netdev.Snapshot) []Check {
	const name = "netfilter: forwarded packets"
	c, err := nftables.New()
	if err != nil {
		return []Check{{Name: name, Level: Warn, Detail: err.Error()}}
	}
	chains, err := c.ListChains()
	if err != nil {
		return []Check{{Name: name, Level: Warn, Detail: fmt.Sprintf("nftables: %v", err)}}
	}
	var checks []Check
	for _, chain := range chains {
		if chain.Hooknum == nil || *chain.Hooknum != *nftables.ChainHookForward || chain.Policy == nil || *chain.Policy != nftables.ChainPolicyDrop {
			continue
		}
		for _, is4 := range []bool{true, false} {
			if found := forwardChain(host, c, chain, is4); found != nil {
				checks = append(checks, *found)
			}
		}
	}
	if checks == nil {
		return []Check{check(name, "no chain drops those of pods")}
	}
	return checks
}

// forwardChain returns a warning if a chain with the policy drop drops what pods send or get by a
// family; nil: it does not.
func forwardChain(host *netdev.Snapshot, c *nftables.Conn, chain *nftables.Chain, is4 bool) *Check {
	own := nftables.TableFamilyIPv6
	if is4 {
		own = nftables.TableFamilyIPv4
	}
	if f := chain.Table.Family; f != own && f != nftables.TableFamilyINet {
		return nil
	}
	known, prefixes := podPrefixes(host, is4)
	if known && len(prefixes) == 0 {
		return nil
	}
	w := ruleWalk{conn: c, table: chain.Table, is4: is4}
	prefix := "PREFIX"
	if !known {
		prefixes = []netip.Prefix{{}}
	}
	i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool {
		w.pods = p
		return !w.accepts(chain.Name, true) || !w.accepts(chain.Name, false)
	})
	if i < 0 {
		return nil
	}
	if known {
		prefix = prefixes[i].String()
	}
	place := fmt.Sprintf("%s %s %s", familyName(chain.Table.Family), chain.Table.Name, chain.Name)
	found := check("netfilter: "+place, "", problem{true, Warn,
		"its policy is drop, and no rule accepts pods' packets (" + prefix + "): pods may reach no Services, nor anything outside of the cluster",
		advice("%s", strings.Join(acceptCommands(chain, is4, prefix), "; "))})
	return &found
}

// podPrefixes are this node's. The daemon makes a route to each that ends here.
func podPrefixes(host *netdev.Snapshot, is4 bool) (known bool, prefixes []netip.Prefix) {
	for _, r := range host.Routes {
		if r.Protocol != netdev.OverlayProtocol || r.Type != netdev.RouteUnreachable {
			continue
		}
		known = true
		if r.Prefix.Addr().Is4() == is4 {
			prefixes = append(prefixes, r.Prefix)
		}
	}
	return known, prefixes
}

// acceptCommands have a chain accept what comes from pods, and what goes to them.
func acceptCommands(chain *nftables.Chain, is4 bool, prefix string) []string {
	program, header := "ip6tables", "ip6"
	if is4 {
		program, header = "iptables", "ip"
	}
	if chain.Table.Name == "filter" && chain.Name == "FORWARD" && chain.Table.Family != nftables.TableFamilyINet {
		return []string{fmt.Sprintf("%s -I FORWARD -s %s -j ACCEPT", program, prefix), fmt.Sprintf("%s -I FORWARD -d %s -j ACCEPT", program, prefix)}
	}
	insert := fmt.Sprintf("nft insert rule %s %s %s %s", familyName(chain.Table.Family), chain.Table.Name, chain.Name, header)
	return []string{fmt.Sprintf("%s saddr %s accept", insert, prefix), fmt.Sprintf("%s daddr %s accept", insert, prefix)}
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	}
	return "inet"
}

// ruleWalk follows pods' packets through the chains of a table, by the rules that match all of them.
type ruleWalk struct {
	conn  *nftables.Conn
	table *nftables.Table
	is4   bool
	pods  netip.Prefix // not valid: unknown
}

// accepts says whether a chain accepts what comes from pods, or goes to them.
func (w *ruleWalk) accepts(chain string, from bool) bool {
	return w.verdict(chain, from) == expr.VerdictAccept
}

// verdict is VerdictReturn where no rule of the chain decides.
func (w *ruleWalk) verdict(chain string, from bool) expr.VerdictKind {
	rules, err := w.conn.GetRules(w.table, &nftables.Chain{Name: chain, Table: w.table})
	if err != nil {
		return expr.VerdictReturn
	}
	for _, r := range rules {
		v := w.match(r.Exprs, from)
		if v == nil {
			continue
		}
		kind := v.Kind
		if kind == expr.VerdictJump || kind == expr.VerdictGoto {
			if kind = w.verdict(v.Chain, from); kind == expr.VerdictReturn && v.Kind == expr.VerdictJump {
				continue
			}
		}
		return kind
	}
	return expr.VerdictReturn
}

// match returns what a rule does with all packets from pods, or to them; nil: it may not match
// some. A set may have the pods' prefixes: a rule with one counts if it accepts.
func (w *ruleWalk) match(rule []expr.Any, from bool) *expr.Verdict {
	var m matcher
	bySet := false
	for _, e := range rule {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Match:
			if e.Name != "comment" {
				return nil
			}
		case *expr.Meta, *expr.Payload:
			m = matcher{load: e}
		case *expr.Bitwise:
			m.mask = e.Mask
		case *expr.Cmp:
			if e.Op != expr.CmpOpEq || !m.matches(w, e.Data, from) {
				return nil
			}
		case *expr.Lookup:
			if bySet = !e.Invert && m.isAddress(w, from); !bySet {
				return nil
			}
		case *expr.Reject:
			return &expr.Verdict{Kind: expr.VerdictDrop}
		case *expr.Verdict:
			if bySet && e.Kind != expr.VerdictAccept {
				return nil
			}
			return e
		default:
			return nil
		}
	}
	return nil
}

// matcher is what a rule compares.
type matcher struct {
	load expr.Any
	mask []byte
}

// isAddress says whether it is the pods' address in what comes from them, or goes to them.
func (m matcher) isAddress(w *ruleWalk, from bool) bool {
	p, ok := m.load.(*expr.Payload)
	offset, width := uint32(8), uint32(16)
	if w.is4 {
		offset, width = 12, 4
	}
	if !from {
		offset += width
	}
	return ok && p.Base == expr.PayloadBaseNetworkHeader && p.Offset == offset && p.Len <= width
}

// matches says whether all packets from pods, or to them, have this value.
func (m matcher) matches(w *ruleWalk, value []byte, from bool) bool {
	if meta, ok := m.load.(*expr.Meta); ok {
		family, device := byte(unix.NFPROTO_IPV6), expr.MetaKeyOIFNAME
		if w.is4 {
			family = unix.NFPROTO_IPV4
		}
		if from {
			device = expr.MetaKeyIIFNAME
		}
		return meta.Key == expr.MetaKeyNFPROTO && bytes.Equal(value, []byte{family}) ||
			meta.Key == device && strings.HasPrefix(podDevices, string(value))
	}
	if !m.isAddress(w, from) || !w.pods.IsValid() {
		return false
	}
	pods := w.pods.Addr().AsSlice()
	bits := 8 * len(value)
	if m.mask != nil {
		bits = leadingOnes(m.mask)
	}
	a, _ := netip.AddrFromSlice(append(slices.Clone(value), make([]byte, len(pods)-len(value))...))
	p, err := a.Prefix(bits)
	return err == nil && p.Bits() <= w.pods.Bits() && p.Contains(w.pods.Addr())
}

// leadingOnes is the length of the prefix that a mask leaves.
func leadingOnes(mask []byte) (n int) {
	for n < 8*len(mask) && mask[n/8]&(0x80>>(n%8)) != 0 {
		n++
	}
	return n
}
