package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/session"
)

// A unit is what a number of the configuration counts. The number itself stands alone there.
type unit struct {
	name  string             // as in kbit/s; "" counts things
	parts map[string]float64 // how many of it the suffix of a text is, in lower case
	// example is a right value, and what it is.
	example string
}

var (
	things       = unit{parts: map[string]float64{"k": 1e3, "m": 1e6, "g": 1e9, "ki": 1 << 10, "mi": 1 << 20}}
	seconds      = unit{"seconds", map[string]float64{"ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}, "60"}
	milliseconds = unit{"milliseconds", map[string]float64{"us": 1e-3, "ms": 1, "s": 1000}, "10"}
	octets       = unit{"octets", map[string]float64{"b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "ki": 1 << 10, "kib": 1 << 10, "mi": 1 << 20, "mib": 1 << 20, "gi": 1 << 30, "gib": 1 << 30}, "67108864"}
	kilobits     = unit{"kbit/s", bitRates(), "100000 for 100 Mbit/s"}
)

func bitRates() map[string]float64 {
	rates := map[string]float64{}
	for prefix, n := range map[string]float64{"": 1e-3, "k": 1, "m": 1e3, "g": 1e6, "t": 1e9} {
		for _, end := range []string{"bit/s", "bits/s", "b/s", "bps", "bit", "bits"} {
			rates[prefix+end] = n
		}
		if prefix != "" {
			rates[prefix] = n
		}
	}
	return rates
}

// unitOf has the units of fields, by their struct and name. The others count things.
var unitOf = map[[2]string]unit{
	of[session.BitRate]("uplink"):      kilobits,
	of[session.BitRate]("downlink"):    kilobits,
	of[UPF]("echo_interval"):           seconds,
	of[UPF]("rate_burst"):              milliseconds,
	of[Buffer]("bytes"):                octets,
	of[BGP]("restart_time"):            seconds,
	of[BGP]("stale_time"):              seconds,
	of[BGPPeer]("hold_time"):           seconds,
	of[Liveness]("interval"):           milliseconds,
	of[nat.Timeouts]("udp"):            seconds,
	of[nat.Timeouts]("icmp"):           seconds,
	of[nat.Timeouts]("tcp"):            seconds,
	of[nat.Timeouts]("tcp_transitory"): seconds,
}

// of is the key of a field of a struct.
func of[T any](field string) [2]string { return [2]string{reflect.TypeFor[T]().Name(), field} }

var (
	amount = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*(?:/s)?)$`)
	commas = regexp.MustCompile(`^[0-9]{1,3}(?:,[0-9]{3})+\b`)
	// group is what YAML makes of the end of a number such as 100,000 in braces: a field.
	group = regexp.MustCompile(`^[0-9]{3}$`)
)

// routingTables are the kernel's names of tables that need no file.
var routingTables = map[string]string{"main": "254", "local": "255", "default": "253"}

// unit is that of the field that is being read, and whether it has one.
func (d *decoder) unit() (u unit, has bool) {
	if u, has = unitOf[[2]string{d.in.Name(), d.name}]; !has {
		u = things
	}
	return u, has
}

// wholeNumber is the fix for a text where a number has to be: the number that it stands for, if it has
// a unit, commas, or is the name of a routing table.
func (d *decoder) wholeNumber(text, field string, most uint64) string {
	if table := routingTables[strings.ToLower(text)]; table != "" && strings.HasSuffix(field, "table") {
		return "write " + table
	}
	if strings.HasSuffix(field, "asn") {
		if asn := asNumber(text); asn != "" {
			return "write " + asn
		}
	}
	u, hasUnit := d.unit()
	text = commas.ReplaceAllStringFunc(text, func(n string) string { return strings.ReplaceAll(n, ",", "") })
	if m := amount.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		part := u.parts[strings.ToLower(m[2])]
		if m[2] == "" {
			part = 1
		}
		isOctets := u.name == kilobits.name && strings.Contains(m[2], "B/") // not bits
		if whole := math.Round(n * part); err == nil && part > 0 && whole >= 1 && whole <= float64(most) && !isOctets {
			return fmt.Sprintf("write %.0f%s", whole, u.in())
		}
	}
	if hasUnit {
		return fmt.Sprintf("a whole number of %s, such as %s", u.name, u.example)
	}
	least := 0
	if isSST(field) {
		least = 1
	}
	return fmt.Sprintf("a whole number from %d to %d", least, most)
}

// isSST says whether a field is a slice/service type, of which 0 is none.
func isSST(field string) bool { return strings.HasSuffix(field, "snssai.sst") }

// asNumber is a number of an autonomous system in its other ways to be written: AS65001, 1.10 (RFC 5396).
func asNumber(text string) string {
	text = strings.TrimPrefix(strings.ToLower(text), "as")
	high, low, isDotted := strings.Cut(text, ".")
	if !isDotted {
		high, low = "0", text
	}
	const half = 16
	h, err := strconv.ParseUint(high, 10, half)
	l, err2 := strconv.ParseUint(low, 10, 2*half)
	if err != nil || err2 != nil || isDotted && l >= 1<<half {
		return ""
	}
	return strconv.FormatUint(h<<half+l, 10)
}

// in is what stands behind the number of a fix.
func (u unit) in() string {
	if u.name == "" {
		return ""
	}
	return ", in " + u.name
}

// joinThousands returns the keys and values of a mapping with numbers such as 100,000 in one piece:
// in braces YAML takes what is behind a comma for a field.
func (d *decoder) joinThousands(content []*yaml.Node, path string) (out []*yaml.Node) {
	isGroup := func(i int) bool {
		return i+1 < len(content) && group.MatchString(content[i].Value) && content[i+1].Tag == "!!null"
	}
	for i := 0; i+1 < len(content); i += 2 {
		number := *content[i+1]
		written := number.Value
		for number.Tag == "!!int" && isGroup(i+2) {
			number.Value += content[i+2].Value
			written += "," + content[i+2].Value
			content = slices.Delete(slices.Clone(content), i+2, i+4)
		}
		if written == number.Value {
			out = append(out, content[i], content[i+1])
			continue
		}
		d.fail(&number, join(path, content[i].Value), "write "+number.Value, "a number has no commas, is %s", written)
		out = append(out, content[i], &number)
	}
	return out
}
