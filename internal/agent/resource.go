package agent

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Keys of KindSettings.
const (
	keyEncapsulation = "encapsulation"
	keyDomain        = "domain"
	keyGTPU          = "gtpu"
)

// kinds in the order of the configuration file.
var kinds = []Kind{KindInterface, KindSettings, KindLocator, KindSID, KindPolicy, KindCandidatePath, KindSteering, KindTunnel, KindSlice}

// resource is one thing that was asked for. Value is of the type that the
// kind's list in config.Config holds, and for settings the section itself.
type resource struct {
	Ref
	origin Origin
	value  any
}

// newValue returns a pointer to the zero value of what a resource holds.
func newValue(r Ref) (any, error) {
	switch r.Kind {
	case KindInterface:
		return new(config.Interface), nil
	case KindLocator:
		return new(config.Locator), nil
	case KindSID:
		return new(srv6.LocalSID), nil
	case KindPolicy:
		return new(srpolicy.Policy), nil
	case KindCandidatePath:
		return new(srpolicy.CandidatePath), nil
	case KindSteering:
		return new(srpolicy.Steering), nil
	case KindTunnel:
		return new(gtpu.Tunnel), nil
	case KindSlice:
		return new(slice.Slice), nil
	case KindSettings:
		switch r.Key {
		case keyEncapsulation:
			return new(config.Encapsulation), nil
		case keyDomain:
			return new([]netip.Prefix), nil
		case keyGTPU:
			return new(config.GTPU), nil
		}
	}
	return nil, fmt.Errorf("%w: no such resource: %s", ErrNotFound, r)
}

// decode makes a resource of what the state file holds.
func decode(r Ref, origin Origin, data []byte) (resource, error) {
	p, err := newValue(r)
	if err != nil {
		return resource{}, err
	}
	if err := json.Unmarshal(data, p); err != nil {
		return resource{}, fmt.Errorf("%s: %w", r, err)
	}
	return resource{r, origin, reflect.ValueOf(p).Elem().Interface()}, nil
}

// flatten lists what a configuration asks for. Settings that are as they would
// be if nothing had been said are not asked for.
func flatten(c *config.Config, origin Origin) []resource {
	out := make([]resource, 0, len(c.SIDs)+len(c.Policies)+len(c.Steering)+len(c.Tunnels)+16)
	add := func(kind Kind, key string, value any) {
		out = append(out, resource{Ref{kind, key}, origin, value})
	}
	for _, v := range c.Interfaces {
		add(KindInterface, v.Name, v)
	}
	if e := c.Encapsulation; e != (config.Encapsulation{}) && e != (config.Encapsulation{HopLimit: config.DefaultHopLimit}) {
		add(KindSettings, keyEncapsulation, e)
	}
	if len(c.Domain) > 0 {
		add(KindSettings, keyDomain, c.Domain)
	}
	if len(c.GTPU.Addresses) > 0 || len(c.GTPU.Pools) > 0 {
		add(KindSettings, keyGTPU, c.GTPU)
	}
	for _, v := range c.Locators {
		add(KindLocator, v.Name, v)
	}
	for _, v := range c.SIDs {
		add(KindSID, sidKey(v.SID), v)
	}
	for _, v := range c.Policies {
		add(KindPolicy, v.Name, v)
	}
	for _, v := range c.CandidatePaths {
		add(KindCandidatePath, v.Name, v)
	}
	for _, v := range c.Steering {
		add(KindSteering, steeringKey(v), v)
	}
	for _, v := range c.Tunnels {
		add(KindTunnel, v.Name, v)
	}
	for _, v := range c.Slices {
		add(KindSlice, v.Name, v)
	}
	return out
}

// unflatten is the reverse of flatten. There may be very much of some kinds.
func unflatten(all iter.Seq[resource]) *config.Config {
	count := map[Kind]int{}
	for r := range all {
		count[r.Kind]++
	}
	c := &config.Config{
		SIDs:     slices.Grow([]srv6.LocalSID(nil), count[KindSID]),
		Steering: slices.Grow([]srpolicy.Steering(nil), count[KindSteering]),
		Tunnels:  slices.Grow([]gtpu.Tunnel(nil), count[KindTunnel]),
	}
	for r := range all {
		switch v := r.value.(type) {
		case config.Interface:
			c.Interfaces = append(c.Interfaces, v)
		case config.Encapsulation:
			c.Encapsulation = v
		case []netip.Prefix:
			c.Domain = v
		case config.GTPU:
			c.GTPU = v
		case config.Locator:
			c.Locators = append(c.Locators, v)
		case srv6.LocalSID:
			c.SIDs = append(c.SIDs, v)
		case srpolicy.Policy:
			c.Policies = append(c.Policies, v)
		case srpolicy.CandidatePath:
			c.CandidatePaths = append(c.CandidatePaths, v)
		case srpolicy.Steering:
			c.Steering = append(c.Steering, v)
		case gtpu.Tunnel:
			c.Tunnels = append(c.Tunnels, v)
		case slice.Slice:
			c.Slices = append(c.Slices, v)
		}
	}
	return c
}

func sidKey(p netip.Prefix) string { return p.Masked().String() }

func steeringKey(s srpolicy.Steering) string {
	if s.Interface == "" {
		return s.Prefix.Masked().String()
	}
	var b strings.Builder
	b.WriteString(s.Interface)
	for _, v := range s.VLANs {
		b.WriteByte('.')
		b.WriteString(strconv.Itoa(int(v)))
	}
	return b.String()
}

// normalize lets people write a SID or a steering prefix as they like: an
// address stands for itself as a prefix, host bits and spelling do not matter.
func (r Ref) normalize() Ref {
	if r.Kind != KindSID && r.Kind != KindSteering {
		return r
	}
	if p, err := netip.ParsePrefix(r.Key); err == nil {
		r.Key = p.Masked().String()
	} else if a, err := netip.ParseAddr(r.Key); err == nil && a.Zone() == "" {
		r.Key = netip.PrefixFrom(a, a.BitLen()).String()
	}
	return r
}

// same says whether two values ask for the same. Nil and empty lists do, so
// what the configuration would print counts where the values differ.
func same(a, b any) bool {
	switch p := a.(type) { // of these there are thousands
	case srpolicy.Policy:
		if q, ok := b.(srpolicy.Policy); ok && equalPolicies(&p, &q) {
			return true
		}
	case srpolicy.CandidatePath:
		if q, ok := b.(srpolicy.CandidatePath); ok && equalPaths(&p, &q) {
			return true
		}
	case srpolicy.Steering:
		if q, ok := b.(srpolicy.Steering); ok && equalSteering(&p, &q) {
			return true
		}
	}
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
