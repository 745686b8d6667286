package cli

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
)

const filterGrammar = `FILTER is any of these, joined by "and":

  src PREFIX        the outer source is in PREFIX (an address is one of its own)
  dst PREFIX        the outer destination is in PREFIX
  interface NAME    received on that interface
  sid PREFIX        the local SID that was met is in PREFIX
  teid N            a GTP-U header, received or sent, has this TEID (0x: hexadecimal)
  drops             dropped packets only

Without a FILTER every packet is shown.`

// parseFilter reads a filter; "and" may be left out.
func parseFilter(args []string) (agent.TraceFilter, error) {
	var f agent.TraceFilter
	tokens := strings.Fields(strings.Join(args, " "))
	seen := map[string]bool{}
	for i := 0; i < len(tokens); i++ {
		name := strings.ToLower(tokens[i])
		if name == "and" {
			if i == 0 || i == len(tokens)-1 {
				return f, fmt.Errorf(`"and" stands between two conditions`)
			}
			continue
		}
		if seen[name] {
			return f, fmt.Errorf("%s is given twice: a packet has only one", name)
		}
		seen[name] = true
		if name == "drops" {
			f.Drops = true
			continue
		}
		if _, known := conditions[name]; !known {
			return f, fmt.Errorf("%q is not a condition: give src, dst, interface, sid, teid or drops", tokens[i])
		}
		if i+1 == len(tokens) || tokens[i+1] == "and" {
			return f, fmt.Errorf("%s needs a value", name)
		}
		i++
		if err := conditions[name](&f, tokens[i]); err != nil {
			return f, fmt.Errorf("%s: %w", name, err)
		}
	}
	return f, nil
}

// conditions are those that have a value.
var conditions = map[string]func(f *agent.TraceFilter, value string) error{
	"src":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.Source, v) },
	"dst":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.Destination, v) },
	"sid":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.SID, v) },
	"interface": func(f *agent.TraceFilter, v string) error { f.Interface = v; return nil },
	"teid": func(f *agent.TraceFilter, v string) error {
		n, err := strconv.ParseUint(v, 0, 32)
		if err != nil {
			return fmt.Errorf("%q is not a TEID: give 0 to 4294967295, or hexadecimal as 0x1a2b", v)
		}
		teid := uint32(n)
		f.TEID = &teid
		return nil
	},
}

func setPrefix(p *netip.Prefix, text string) error {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		*p = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	parsed, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%q is neither a prefix such as 2001:db8::/32 nor an address", text)
	}
	*p = parsed.Masked()
	return nil
}
