package progrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HostRoutes is the loaded object of bpf/hostroute.c: host routing by eBPF, with IP-in-IP or without,
// the baselines of pods' networks.
type HostRoutes struct {
	objects hostrouteObjects
	links   []link.Link
}

// HostRoute is where packets to an address go.
type HostRoute struct {
	NextHop
	// ToPod: into the namespace of the other end of the veth.
	ToPod bool
	// Outer are the IPv4 addresses around the packets, source and destination (AttachIPInIP).
	Outer [2]netip.Addr
}

// LoadHostRoutes loads it.
func LoadHostRoutes() (*HostRoutes, error) {
	h := &HostRoutes{}
	if err := loadHostrouteObjects(&h.objects, nil); err != nil {
		return nil, fmt.Errorf("load the program of host routing: %w", err)
	}
	return h, nil
}

// Put sends packets to an address by a route.
func (h *HostRoutes) Put(to netip.Addr, r HostRoute) error {
	key, value := hostrouteIn6{}, hostrouteHostRoute{Ifindex: uint32(r.Ifindex)}
	if to.Is4() {
		copy(key.B[12:], to.AsSlice())
	} else {
		key.B = to.As16()
	}
	if r.ToPod {
		value.ToPod = 1
	}
	for i, outer := range []*uint32{&value.OuterSrc, &value.OuterDst} {
		if r.Outer[i].Is4() {
			*outer = binary.NativeEndian.Uint32(r.Outer[i].AsSlice())
		}
	}
	copy(value.Dst[:], r.Dst)
	copy(value.Src[:], r.Src)
	if err := h.objects.HostRoute.Update(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write the route to %s: %w", to, err)
	}
	return nil
}

// Attach routes what an interface of the caller's network namespace receives.
func (h *HostRoutes) Attach(name string) error { return h.attach(name, h.objects.HostRouteSkb) }

// AttachIPInIP does so with IP-in-IP between nodes.
func (h *HostRoutes) AttachIPInIP(name string) error { return h.attach(name, h.objects.IpInIpSkb) }

func (h *HostRoutes) attach(name string, program *ebpf.Program) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: i.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("attach tcx to interface %s: %w", name, err)
	}
	h.links = append(h.links, l)
	return nil
}

// Close detaches and unloads it.
func (h *HostRoutes) Close() error {
	var errs []error
	for _, l := range h.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, h.objects.Close())...)
}
