package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/engine/claim"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// written are headends whose candidate paths go the way that engine.write says.
func written(file *netfile.Network, headends map[string]headend.Headend, paths *advertiser) map[string]headend.Headend {
	if file.Engine.Write != netfile.WriteBGP {
		return headends
	}
	out := map[string]headend.Headend{}
	for _, n := range file.Nodes {
		if h, has := headends[n.Name].(remote); has {
			out[n.Name] = byBGP{remote: h, name: n.Name, paths: paths, self: file.Engine.BGP.RouterID, router: n.RouterID, prefix: file.Engine.Name + ":"}
		}
	}
	return out
}

// byBGP is a headend that is read by its management API, and written by BGP.
type byBGP struct {
	remote
	name   string
	paths  *advertiser
	self   netip.Addr // the engine's router ID
	router netip.Addr // bgp.router_id of the headend's daemon
	prefix string     // of the engine's names
}

// Policies are all that the node has; they say which engine writes.
func (h byBGP) Policies(ctx context.Context) ([]headend.Policy, error) {
	list, err := h.remote.Policies(ctx)
	switch {
	case h.paths == nil || !h.router.Is4():
	case err != nil:
		h.paths.claim.Silent(h.name)
	default:
		id := distinguisher(h.router)
		h.paths.claim.See(h.name, list, id, ^id)
	}
	return list, err
}

// distinguisher is of an engine's paths for a headend: its router ID.
func distinguisher(router netip.Addr) uint32 {
	id := router.As4()
	return binary.BigEndian.Uint32(id[:])
}

// advertised is a candidate path as BGP carries it. Its distinguisher is the headend's router ID, with
// all bits turned over for a repair path: one engine may have paths of the same color and endpoint
// for several headends.
func (h byBGP) advertised(p headend.Policy, repair bool) srpolicy.Advertised {
	a := srpolicy.Advertised{Color: p.Color, Endpoint: p.Endpoint, Name: h.prefix + p.Name}
	if h.router.Is4() {
		a.Distinguisher = distinguisher(h.router)
	}
	if repair {
		a.Distinguisher, a.Name = ^a.Distinguisher, h.prefix+"repair:"+p.Name
	}
	return a
}

// PathName is what the headend calls the engine's path of a policy.
func (h byBGP) PathName(_ string, p headend.Policy) string {
	return observed.PathName(h.self, h.advertised(p, false))
}

// RepairName is what it calls the repair path.
func (h byBGP) RepairName(_ string, p headend.Policy) string {
	return observed.PathName(h.self, h.advertised(p, true))
}

// Put advertises candidate paths to the headend.
func (h byBGP) Put(_ context.Context, paths []headend.Path) error {
	if !h.router.Is4() {
		return errors.New("router_id is missing (fix: give the node's entry in the file the bgp.router_id of its daemon)")
	}
	return h.paths.change(h.injections(paths), nil)
}

// Remove withdraws candidate paths from the headend.
func (h byBGP) Remove(_ context.Context, paths []headend.Path) error {
	return h.paths.change(nil, h.injections(paths))
}

// injections are candidate paths for this headend alone.
func (h byBGP) injections(paths []headend.Path) (list []bgp.Injection) {
	for _, p := range paths {
		a := h.advertised(p.Of, p.Repair)
		a.Preference, a.SegmentLists = p.Preference, p.SegmentLists
		list = append(list, bgp.Injection{Advertised: a, Headends: []netip.Addr{h.router}})
	}
	return list
}

// has are the paths of an earlier engine that the headend has.
func (h byBGP) has(ctx context.Context) ([]bgp.Injection, error) {
	policies, err := h.remote.Policies(ctx)
	if err != nil {
		return nil, err
	}
	all, err := h.CandidatePaths(ctx, "")
	if err != nil {
		return nil, err
	}
	var ours []headend.Path
	for _, p := range policies {
		for _, c := range all {
			repair := c.Name == h.RepairName("", p)
			if c.Origin == desired.OriginBGP && p.Endpoint.IsValid() && (repair || c.Name == h.PathName("", p)) {
				ours = append(ours, headend.Path{CandidatePath: c.CandidatePath, Of: p, Repair: repair})
			}
		}
	}
	return h.injections(ours), nil
}

// forget is a speaker in the engine's place that advertises nothing: headends drop what they had of
// the engine, of which it says how many paths that are. Only where engine.write says so.
func forget(ctx context.Context, file *netfile.Network, headends map[string]headend.Headend) (_ map[string]headend.Headend, had map[string]int, end func(), err error) {
	if file.Engine.Write != netfile.WriteBGP {
		return headends, nil, func() {}, nil
	}
	headends, had = written(file, headends, nil), map[string]int{}
	for name, h := range headends {
		if list, err := h.(byBGP).has(ctx); err == nil { // else it says so later
			had[name] = len(list)
		}
	}
	s, err := startSpeaker(ctx, file.Engine.BGP, false, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, nil, err
	}
	return headends, had, s.stop, s.speaker.Connect()
}

// withdraw removes what the API added, and waits until what BGP had brought is gone.
func (h byBGP) withdraw(ctx context.Context, prefix string) (removed int, err error) {
	if removed, err = h.remote.withdraw(ctx, prefix); err != nil {
		return removed, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		list, err := h.has(ctx)
		switch {
		case err != nil:
			return removed, err
		case len(list) == 0:
			return removed, nil
		}
		select {
		case <-ctx.Done():
			return removed, fmt.Errorf("%d candidate paths are still there (fix: end the engine first, and see that the headend's BGP peers include the engine)", len(list))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// advertiser has the paths that the engine advertises, while its claim is the best.
type advertiser struct {
	claim    *claim.Claim
	mu       sync.Mutex
	injector *bgp.Injector
	paths    map[pathKey]bgp.Injection
}

type pathKey struct {
	color, distinguisher uint32
	endpoint             netip.Addr
}

func keyOf(v bgp.Injection) pathKey { return pathKey{v.Color, v.Distinguisher, v.Endpoint} }

// change advertises paths beside the others, and others no more: all of it, or nothing.
func (a *advertiser) change(put, remove []bgp.Injection) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := maps.Clone(a.paths)
	for _, v := range remove {
		delete(next, keyOf(v))
	}
	for _, v := range put {
		next[keyOf(v)] = v
	}
	if _, err := a.injector.Set(slices.Collect(maps.Values(next))); err != nil {
		return err
	}
	a.paths = next
	return nil
}

// yield advertises nothing any more if another engine writes: its paths are as good, and headends
// have one of both.
func (a *advertiser) yield() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	all := slices.Collect(maps.Values(a.paths))
	a.mu.Unlock()
	if s := a.claim.State(); s.Held || s.Holder == "" || len(all) == 0 {
		return nil
	}
	return a.change(nil, all)
}

// adopt finds what headends have of an earlier engine. It waits for headends that do not answer,
// but not for longer than they keep these paths.
func adopt(ctx context.Context, headends map[string]headend.Headend, wait time.Duration, log *slog.Logger) (list []bgp.Injection) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var silent []string
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, h := range headends {
		all.Go(func() {
			found, err := h.(byBGP).patiently(ctx)
			mu.Lock()
			defer mu.Unlock()
			if list = append(list, found...); err != nil {
				silent = append(silent, name)
			}
		})
	}
	all.Wait()
	if len(silent) > 0 {
		slices.Sort(silent)
		log.Warn("headends do not answer: candidate paths that they have of an earlier engine will go", "event", logevent.TEHeadendSilent, "headends", strings.Join(silent, ", "))
	}
	return list
}

// patiently is has, again and again until the headend answers.
func (h byBGP) patiently(ctx context.Context) (list []bgp.Injection, err error) {
	for {
		if list, err = h.has(ctx); err == nil {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}
