package device

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// templates are those that a name is enough for, in the networks that RFC 2544,
// RFC 5180 and RFC 3849 set aside for measurements and documentation.
func templates() []traffic.Template {
	user4 := traffic.Inner{Source: catalog.Addr("198.18.0.1"), Destination: catalog.Addr("198.19.0.1")}
	user6 := traffic.Inner{Source: catalog.Addr("2001:2:0:1::1"), Destination: catalog.Addr("2001:2:0:2::1")}
	return []traffic.Template{
		{Name: "ethernet"},
		{Name: "ipv4", Inner: user4, Flows: 256},
		{Name: "ipv6", Inner: user6, Flows: 256},
		{Name: "gtpu", Inner: user4, Flows: 256, Outer: traffic.Outer{
			Kind: traffic.GTPU, Source: catalog.Addr("192.0.2.1"), Destination: catalog.Addr("198.51.100.1"), TEID: 1, Container: traffic.Uplink, QFI: 9,
		}},
		{Name: "srv6", Inner: user4, Flows: 256, Outer: traffic.Outer{
			Kind: traffic.SRv6, Source: catalog.Addr("2001:db8:1::1"), Segments: []netip.Addr{catalog.Addr("2001:db8:2::1")}, Reduced: true,
		}},
	}
}

// TemplateNames returns the names of the built-in templates.
func TemplateNames() (names []string) {
	for _, t := range templates() {
		names = append(names, t.Name)
	}
	return names
}

// readTemplate finds a template by its name, or reads it from a file.
func readTemplate(name string) (traffic.Template, error) {
	for _, t := range templates() {
		if t.Name == name {
			return t, nil
		}
	}
	if !strings.ContainsAny(name, "./") {
		return traffic.Template{}, fmt.Errorf("there is no template %q", name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return traffic.Template{}, err
	}
	t, err := traffic.ParseTemplate(text)
	if err != nil {
		return t, fmt.Errorf("%s:\n%w", name, err)
	}
	return t, nil
}
