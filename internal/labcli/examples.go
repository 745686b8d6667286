package labcli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are those of the commands that have none of their own, by the command's path without
// the program. A test runs all of them through the command tree.
var examples = map[string]string{
	"":              "culvert lab run gateway\nculvert bench suite --quick",
	"lab":           "culvert lab list\nculvert lab run gateway",
	"lab list":      "culvert lab list",
	"lab up":        "culvert lab up gateway",
	"lab run":       "culvert lab run gateway\nculvert lab run slices --checks ping",
	"lab down":      "culvert lab down gateway",
	"lab exec":      "culvert lab exec gateway a ip -6 route",
	"lab graph":     "culvert lab graph gateway\nculvert lab graph gateway -o dot | dot -Tsvg",
	"bench":         "culvert bench list\nculvert bench run functions --quick",
	"bench list":    "culvert bench list",
	"bench scaling": "culvert bench scaling --quick",
	"bench suite":   "culvert bench suite --quick",
	"gnb":           "culvert gnb ping 198.51.100.1 --upf 192.0.2.10 --n3 203.0.113.9 --ue 10.45.0.2",
	"smf":           "culvert smf associate --upf 192.0.2.10\nculvert smf run scenario.yaml --upf 192.0.2.10",
	"smf associate": "culvert smf associate --upf 192.0.2.10",
	"smf delete":    "culvert smf delete",
	"smf idle":      "culvert smf idle",
	"smf page":      "culvert smf page",
	"smf query":     "culvert smf query -o json",
	"smf release":   "culvert smf release",
	"smf show":      "culvert smf show",
}

// exemplify gives each command below root that has no example one.
func exemplify(root *cobra.Command) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), root.Name()))
		if text := examples[path]; c.Example == "" && text != "" {
			c.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
