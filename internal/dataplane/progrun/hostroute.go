package progrun

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HostRoutes is the loaded object of bpf/hostroute.c: host routing by eBPF, the baseline of pods'
// networks.
type HostRoutes struct {
	objects hostrouteObjects
	links   []link.Link
}

// HostRoute is where packets to an address go.
type HostRoute struct {
	NextHop
	// ToPod: into the namespace of the other end of the veth.
	ToPod bool
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
	copy(value.Dst[:], r.Dst)
	copy(value.Src[:], r.Src)
	if err := h.objects.HostRoute.Update(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write the route to %s: %w", to, err)
	}
	return nil
}

// Attach routes what an interface of the caller's network namespace receives.
func (h *HostRoutes) Attach(name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: h.objects.HostRouteSkb, Interface: i.Index, Attach: ebpf.AttachTCXIngress})
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
