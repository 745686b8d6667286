package check

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// resolve puts addresses in the place of the names of a check.
func resolve(in *instance.Instance, c *topology.Check, family string) (*topology.Check, error) {
	if c.ToName == "" {
		return c, nil
	}
	r := *c
	var err error
	if r.To, err = in.Address(c.ToName, family); err != nil {
		return nil, err
	}
	if c.Both {
		if r.Source, err = in.Address(c.From, family); err != nil {
			return nil, err
		}
	}
	if s := in.Service(c.ToName); s != nil {
		r.Port, r.At, r.AtPort = s.Port, s.Pod, s.TargetPort
	}
	if s := in.Service(c.NodePort); s != nil {
		r.Port, r.At, r.AtPort = s.NodePort, s.Pod, s.TargetPort
	}
	if r.At != "" && r.AtPort != 0 {
		at, err := in.Address(r.At, family)
		if err != nil {
			return nil, err
		}
		r.Listen = netip.AddrPortFrom(at, r.AtPort)
	}
	return &r, nil
}
