package claim

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

const of, ofRepair = 0x0a000001, ^uint32(0x0a000001)

func engine(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }

// has are policies with paths of engines, and others that are none.
func has(engines ...byte) []headend.Policy {
	p := headend.Policy{Paths: []srpolicy.Verdict{{}, {Originator: engine(99), Discriminator: 7}, {Discriminator: of}}}
	for _, n := range engines {
		p.Paths = append(p.Paths, srpolicy.Verdict{Originator: engine(n), Discriminator: of})
	}
	return []headend.Policy{{}, p}
}

// Of engines 8 and 9, which look at the headends a and b, each round says who changes them.
func TestClaim(t *testing.T) {
	silent := []headend.Policy(nil)
	for name, tt := range map[string]struct {
		self   byte
		rounds [][2][]headend.Policy // of a and b
		want   string
	}{
		"nobody has a path":                       {9, [][2][]headend.Policy{{has(), has()}}, "9"},
		"this one has some":                       {9, [][2][]headend.Policy{{has(9), has()}}, "9"},
		"another has some":                        {8, [][2][]headend.Policy{{has(), has(9)}}, "-"},
		"it has some in the other place":          {8, [][2][]headend.Policy{{has(9), has()}}, "-"},
		"both have some, and this is the lower":   {8, [][2][]headend.Policy{{has(8), has(9)}}, "8"},
		"both have some, and this is the higher":  {9, [][2][]headend.Policy{{has(9), has(8)}}, "-"},
		"there are three":                         {8, [][2][]headend.Policy{{has(8, 9), has(7)}}, "-"},
		"it is gone":                              {8, [][2][]headend.Policy{{has(), has(9)}, {has(), has()}}, "8"},
		"another comes":                           {9, [][2][]headend.Policy{{has(), has()}, {has(8), has()}}, "-"},
		"a headend has never answered":            {8, [][2][]headend.Policy{{has(), silent}}, "?"},
		"it answers":                              {8, [][2][]headend.Policy{{has(), silent}, {has(), has()}}, "8"},
		"one that answered is silent":             {8, [][2][]headend.Policy{{has(), has()}, {has(), silent}}, "8"},
		"it had another's paths":                  {8, [][2][]headend.Policy{{has(), has(9)}, {has(), silent}}, "-"},
		"this one's paths, and one never answers": {8, [][2][]headend.Policy{{has(8), silent}}, "8"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(engine(tt.self), time.Minute, slog.New(slog.DiscardHandler))
				look := func(r [2][]headend.Policy) {
					for i, policies := range r {
						if policies == nil {
							c.Silent(fmt.Sprint(i))
						} else {
							c.See(fmt.Sprint(i), policies, of, ofRepair)
						}
					}
				}
				for _, r := range tt.rounds {
					time.Sleep(10 * time.Second)
					look(r)
					c.Held()
				}
				got := "-"
				switch _, held := c.Held(); {
				case held:
					got = fmt.Sprint(tt.self)
				case c.State().Holder == "":
					got = "?"
				}
				if got != tt.want || c.State().Held != (got != "-" && got != "?") {
					t.Errorf("%s changes headends, want %s: %+v", got, tt.want, c.State())
				}
				time.Sleep(2 * time.Minute) // nobody answers any more: paths of engines that are gone are gone
				look([2][]headend.Policy{})
				if _, held := c.Held(); !held {
					t.Errorf("after two minutes: %+v", c.State())
				}
			})
		})
	}
}

// What an engine does ends when another one turns out to have the better claim, and goes on when that
// one is gone. Repair paths count, too.
func TestClaimIsLost(t *testing.T) {
	c := New(engine(9), time.Minute, slog.New(slog.DiscardHandler))
	if _, held := c.Held(); held {
		t.Error("it has not looked yet")
	}
	c.See("a", has(9), of, ofRepair)
	ctx, held := c.Held()
	if !held || ctx.Err() != nil {
		t.Fatal("it is alone")
	}
	repair := has()
	repair[1].Paths[1] = srpolicy.Verdict{Originator: engine(8), Discriminator: ofRepair}
	c.See("b", repair, of, ofRepair)
	if ctx.Err() == nil {
		t.Error("it goes on")
	}
	if s := c.State(); s.Held || s.Whose() != "10.0.0.8 holds lease bgp" || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	if gone, held := c.Held(); held || gone.Err() == nil {
		t.Error("it has the claim")
	}
	c.See("b", has(), of, ofRepair)
	if ctx, held := c.Held(); !held || ctx.Err() != nil || c.State().Whose() != "this engine holds lease bgp" {
		t.Errorf("the other one is gone: %+v", c.State())
	}
}
