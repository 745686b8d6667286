package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are those of the commands that have none of their own, by the command's path without
// the program. A test runs all of them through the command tree.
var examples = map[string]string{
	"":                   "culvert check /etc/culvert/culvert.yaml\nculvert run --config /etc/culvert/culvert.yaml\nculvert status",
	"add":                "culvert add part.yaml",
	"apply":              "culvert apply /etc/culvert/culvert.yaml --dry-run\nculvert apply /etc/culvert/culvert.yaml",
	"check":              "culvert check /etc/culvert/culvert.yaml\nculvert check --offline for-another-machine.yaml -o json",
	"config":             "culvert config > running.yaml",
	"run":                "culvert run --config /etc/culvert/culvert.yaml",
	"state":              "culvert state backup culvert.backup\nculvert state show culvert.backup",
	"schema":             "culvert schema > culvert.schema.json",
	"unpin":              "culvert unpin",
	"status":             "culvert status\nculvert status -o json",
	"version":            "culvert version",
	"counters":           "culvert counters\nculvert counters --watch 2s",
	"drops":              "culvert drops\nculvert drops --all -o json",
	"te":                 "culvert te show network.yaml",
	"te show":            "culvert te show network.yaml -o json",
	"cni":                "culvert cni ready",
	"cni ready":          "culvert cni ready",
	"cni absent":         "culvert cni absent --bin-dir /opt/cni/bin --conf-dir /etc/cni/net.d",
	"cni uninstall":      "culvert cni uninstall",
	"cni install":        "culvert cni install --bin-dir /opt/cni/bin --conf-dir /etc/cni/net.d",
	"cni prepare":        "culvert cni prepare",
	"connectivity":       "culvert connectivity test",
	"connectivity clean": "culvert connectivity clean",
}

// exampleKeys has a key of each noun, as it is in examples.
var exampleKeys = map[string]string{
	"adjacency": `"10.6.0.1 dev n6"`, "announcement": "10.45.0.0/16", "association": "smf1.example", "bgp": "192.0.2.9",
	"candidate-path": "best", "class": "voice", "interface": "n3", "locator": "main", "nat": "10.45.0.0/16", "node": "node-2",
	"pod": "default/web-0", "policy": "gold", "sid": "2001:db8:1:1::/64", "slice": "internet", "steering": "203.0.113.0/24", "tunnel": "t1",
}

// exemplify gives each command below root that has no example one.
func exemplify(root *cobra.Command) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), root.Name()))
		if c.Example == "" {
			c.Example = indented(exampleOf(path))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// exampleOf returns the example of a command without one of its own, or "".
func exampleOf(path string) string {
	if text := examples[path]; text != "" {
		return text
	}
	noun, verb, _ := strings.Cut(path, " ")
	key := exampleKeys[noun]
	switch {
	case key == "":
		return ""
	case verb == "":
		return "culvert " + noun + "\nculvert " + noun + " show " + key + " -o json"
	case verb == "list":
		return "culvert " + path + " -o json"
	}
	return "culvert " + path + " " + key
}

func indented(text string) string {
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
