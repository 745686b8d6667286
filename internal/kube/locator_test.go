package kube

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestNextLocator(t *testing.T) {
	for want, tt := range map[string]struct {
		pool  string
		taken []string
	}{
		"fc00:0:1::/48":    {"fc00::/32", nil},
		"fc00:0:3::/48":    {"fc00::/32", []string{"fc00:0:2::/48"}},                     // behind the last one
		"fc00:0:100::/48":  {"fc00::/32", []string{"fc00:0:ff::/48"}},                    // with a carry
		"fc00:0:2::/48":    {"fc00::/32", []string{"fc00:0:1::/48", "fc00:0:ffff::/48"}}, // the first that is free
		"fd00:0:1::/48":    {"fd00::/32", []string{"fc00:0:9::/48", "fd01:0:1::/48"}},    // others' are none of this pool
		"fc00:0:8::/48":    {"fc00::/32", []string{"fc00:0:4::/46"}},                     // of another length
		"fc00:0:11::/48":   {"fc00:0:10::/44", nil},
		"":                 {"fc00:0:10::/47", []string{"fc00:0:11::/48"}},
		"no locator at al": {"fc00::/32", []string{"fc00::/16"}},
	} {
		var taken []netip.Prefix
		for _, p := range tt.taken {
			taken = append(taken, prefix(p))
		}
		got, err := nextLocator(prefix(tt.pool), 48, taken)
		if !strings.Contains(want, ":") {
			if !errors.Is(err, ErrPoolExhausted) {
				t.Errorf("%s without %v: %s, %v", tt.pool, tt.taken, got, err)
			}
			continue
		}
		if err != nil || got != prefix(want) {
			t.Errorf("%s without %v: %s, %v, want %s", tt.pool, tt.taken, got, err, want)
		}
	}
}
