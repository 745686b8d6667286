package config_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

const spreadInterface = "interfaces: [{name: n3, roles: [n3], peers: [192.0.2.0/24]}]\ngtpu: {addresses: [192.0.2.1]}\n"

func TestSpread(t *testing.T) {
	for text, want := range map[string][]int{
		"{by: ue}":                        nil,
		"{by: flow, cpus: 2-4}":           {2, 3, 4},
		"{by: ue, cpus: 3}":               {3},
		`{by: ue, cpus: "0,2-3"}`:         {0, 2, 3},
		"{by: off}":                       nil,
		"{by: ue, method: card, cpus: 1}": {1},
		"{by: flow, method: auto}":        nil,
		"{by: flow, method: xdp}":         nil,
	} {
		c, err := config.Parse([]byte(spreadInterface + "spread: " + text))
		if err != nil || !slices.Equal(c.Spread.CPUs, want) || c.Spread.IsSet() == strings.Contains(text, "off") {
			t.Errorf("%s: %+v, %v", text, c, err)
			continue
		}
		back, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := config.Parse(back); err != nil || !slices.Equal(again.Spread.CPUs, want) {
			t.Errorf("%s: as JSON %s, %v", text, back, err)
		}
	}
}

func TestSpreadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"spread: {by: core}":               `spread.by: "core" is not known`,
		"spread: {by: ue, cpus: 7-2}":      `spread.cpus: "7-2" are not numbers of CPUs (fix: numbers such as 2-7`,
		"spread: {by: ue, cpus: -1}":       `spread.cpus: "-1" are not numbers of CPUs`,
		"spread: {by: ue, cpus: [1, 2]}":   "spread.cpus: must be a single value",
		"spread: {cpus: 2-7}":              "spread.by: spread.cpus says where, and nothing what to spread",
		"spread: {by: ue, queues: 2}":      "spread.queues",
		"spread: {by: ue, method: nic}":    `spread.method: "nic" is not known`,
		"spread: {method: card}":           "spread.by: spread.method says who, and nothing what to spread",
		"spread: {by: flow, method: card}": "spread.method: a card does not see flows inside of tunnels",
	} {
		if _, err := config.Parse([]byte(spreadInterface + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := config.Parse([]byte("spread: {by: ue}")); err == nil || !strings.Contains(err.Error(), "no interface") {
		t.Errorf("without interfaces: %v", err)
	}
	c, err := config.Parse([]byte("interfaces: [{name: lo, roles: [n6]}]\nspread: {by: ue, cpus: 0-4000}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckMachine(); err == nil || !strings.Contains(err.Error(), "spread.cpus: CPU") {
		t.Errorf("CPUs that this machine lacks: %v", err)
	}
}
