package config

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The defaults.
const (
	DefaultSocket        = "/run/culvert/culvert.sock"
	DefaultMetricsListen = "127.0.0.1:9418"
	DefaultHopLimit      = 64
	DefaultFunctionBits  = 16
	DefaultPodFlows      = 131072
	DefaultFlowSampling  = 1024
)

// MetricsOff is the value of Metrics.Listen that turns metrics off.
const MetricsOff = "off"

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}

// SetDefaults fills in what is left out, so that equal configurations compare equal,
// however much of them is written out.
func (c *Config) SetDefaults() {
	for i := range c.Interfaces {
		setDefault(&c.Interfaces[i].Mode, "auto")
	}
	for i := range c.Locators {
		setDefault(&c.Locators[i].FunctionBits, DefaultFunctionBits)
	}
	for i := range c.SIDs {
		if sid := &c.SIDs[i]; sid.Behavior == srv6.EndLimit {
			setDefault(&sid.RateUnit, 1)
		}
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		setDefault(&p.Behavior, srv6.HEncapsRed)
		setDefault(&p.Preference, srpolicy.DefaultPreference)
		p.SegmentLists = weighted(p.SegmentLists)
	}
	for i := range c.CandidatePaths {
		p := &c.CandidatePaths[i]
		setDefault(&p.Preference, srpolicy.DefaultPreference)
		p.SegmentLists = weighted(p.SegmentLists)
	}
	setDefault(&c.Encapsulation.HopLimit, DefaultHopLimit)
	setDefault(&c.Limits.SIDs, 65536)
	setDefault(&c.Limits.Policies, 4096)
	setDefault(&c.Limits.SegmentLists, 16384)
	setDefault(&c.Limits.Tunnels, 65536)
	setDefault(&c.Limits.Routes, 65536)
	setDefault(&c.Limits.Adjacencies, 4096)
	if c.Overlay.IsSet() {
		setDefault(&c.Limits.PodFlows, DefaultPodFlows)
	}
	if c.BGP.IsSet() {
		setDefault(&c.BGP.Port, DefaultBGPPort)
		setDefault(&c.BGP.RestartTime, DefaultBGPRestartTime)
		setDefault(&c.BGP.MaxPrefixes, DefaultBGPMaxPrefixes)
		if c.Overlay.Mode == OverlayBGP {
			setDefault(&c.BGP.StaleTime, DefaultBGPStaleTime)
		}
		for i := range c.BGP.Peers {
			setDefault(&c.BGP.Peers[i].Port, DefaultBGPPort)
			setDefault(&c.BGP.Peers[i].HoldTime, DefaultBGPHoldTime)
		}
	}
	if c.Liveness.Enabled {
		setDefault(&c.Liveness.Interval, DefaultLivenessInterval)
		setDefault(&c.Liveness.Multiplier, DefaultLivenessMultiplier)
	}
	if c.Overlay.IsSet() {
		setDefault(&c.Overlay.SIDs, SIDsSingle)
	}
	if c.Overlay.Flows.Enabled {
		setDefault(&c.Overlay.Flows.Sampling, DefaultFlowSampling)
	}
	if c.Overlay.UsesKube() {
		setDefault(&c.Overlay.Kube.Namespace, DefaultKubeNamespace)
		setDefault(&c.Overlay.Kube.NetworkPolicies, PoliciesEnforce)
	}
	c.setUPFDefaults()
	setDefault(&c.API.Socket, DefaultSocket)
	setDefault(&c.Metrics.Listen, DefaultMetricsListen)
	setDefault(&c.Log.Level, "info")
	setDefault(&c.Log.Format, "text")
}

// weighted returns the lists with their weights. It fills in defaults in a copy,
// because others may share the lists.
func weighted(lists []srpolicy.SegmentList) []srpolicy.SegmentList {
	if !slices.ContainsFunc(lists, func(l srpolicy.SegmentList) bool { return l.Weight == 0 }) {
		return lists
	}
	out := slices.Clone(lists)
	for i := range out {
		setDefault(&out[i].Weight, 1)
	}
	return out
}
