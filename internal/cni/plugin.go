package cni

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

// How long an agent that restarts is waited for.
const (
	patience      = 20 * time.Second
	shortPatience = 3 * time.Second // where the answer changes little
	noPatience    = 500 * time.Millisecond
)

// Main is the program culvert-cni of a version.
func Main(programVersion string) {
	open := func() (kernel, error) { return newLinux() }
	skel.PluginMainFuncs(funcs(open), version.PluginSupports("1.0.0", "1.1.0"),
		"culvert-cni "+programVersion+": attaches pods to Culvert's SRv6 overlay")
}

// funcs are CNI's commands.
func funcs(open func() (kernel, error)) skel.CNIFuncs {
	with := func(f func(*plugin, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			c, err := readConfig(args.StdinData)
			if err != nil {
				return err
			}
			k, err := open()
			if err != nil {
				return err
			}
			return f(&plugin{c, k, newAgent(c.Socket)}, args)
		}
	}
	return skel.CNIFuncs{
		Add: with((*plugin).add), Del: with((*plugin).del), Check: with((*plugin).check),
		Status: with((*plugin).status), GC: with((*plugin).gc),
	}
}

// plugin is one run of the program.
type plugin struct {
	*configuration
	kernel kernel
	agent  *agentClient
}

// add makes a pod's interface, has the agent give it addresses and lead to it,
// and tells the runtime; or leaves nothing.
func (p *plugin) add(args *skel.CmdArgs) (err error) {
	if p.prev != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "culvert-cni makes the pod's interface: it has to be the first of the plugins", "")
	}
	w, err := newWanted(p.configuration, args)
	if err != nil {
		return err
	}
	v := veth{host: w.pod.GetHostInterface(), netns: args.Netns, pod: args.IfName, mac: w.mac}
	defer func() {
		if err != nil {
			err = p.undo(w, err)
		}
	}()
	ifindex, err := p.kernel.create(v)
	if err != nil {
		return err
	}
	w.pod.HostIfindex = int32(ifindex)
	if err := p.kernel.prepare(v); err != nil {
		return err
	}
	given, err := ask(p.agent, patience, p.agent.AddPod, &pb.AddPodRequest{Attachment: w.attachment, Pod: w.pod})
	if err != nil {
		return err
	}
	addresses, err := addressesOf(given)
	if err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	mtu := int(given.GetMtu())
	if err := p.kernel.configure(v, addresses, mtu); err != nil {
		return err
	}
	return types.PrintResult(p.result(v, addresses, mtu), p.CNIVersion)
}

// addressesOf reads what the agent gives a pod.
func addressesOf(given *pb.AddPodResponse) (out []address, err error) {
	if len(given.GetAddresses()) != len(given.GetGateways()) {
		return nil, errors.New("it has not one gateway for each address")
	}
	for i, text := range given.GetAddresses() {
		addr, errAddr := netip.ParseAddr(text)
		gateway, errGateway := netip.ParseAddr(given.GetGateways()[i])
		if err := cmp.Or(errAddr, errGateway); err != nil {
			return nil, err
		}
		a := address{addr: addr, gateway: gateway}
		for _, text := range given.GetRoutes() {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, err
			}
			if p.Addr().Is4() == addr.Is4() {
				a.routes = append(a.routes, p)
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// undo takes back what add has made, and what the agent may have, because of
// err. The runtime hears of err, and calls DEL later.
func (p *plugin) undo(w wanted, because error) error {
	failed := errors.Join(p.kernel.remove(w.pod.GetHostInterface()), p.deletePod(w.attachment, noPatience))
	if failed == nil {
		return because
	}
	e := &types.Error{Code: types.ErrInternal, Msg: because.Error()}
	if known, ok := errors.AsType[*types.Error](because); ok {
		*e = *known
	}
	e.Details = strings.TrimPrefix(e.Details+"; and something is left, for DEL: "+failed.Error(), "; ")
	return e
}

func (p *plugin) deletePod(a *pb.Attachment, patience time.Duration) error {
	_, err := ask(p.agent, patience, p.agent.DeletePod, &pb.DeletePodRequest{Attachment: a})
	return err
}

// result is what the runtime, and the plugins after this one, get. The
// pod's interface is the second one.
func (p *plugin) result(v veth, addresses []address, mtu int) *current.Result {
	r := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: p.DNS, Interfaces: []*current.Interface{
		{Name: v.host, Mac: hostMAC.String(), Mtu: mtu},
		{Name: v.pod, Mac: v.mac.String(), Mtu: mtu, Sandbox: v.netns},
	}}
	onLink := unix.RT_SCOPE_LINK
	for _, a := range addresses {
		r.IPs = append(r.IPs, &current.IPConfig{Interface: current.Int(1), Address: *host(a.addr), Gateway: a.gateway.AsSlice()})
		if a.isPrimary() {
			r.Routes = append(r.Routes, &types.Route{Dst: *host(a.gateway), Scope: &onLink})
		}
		for _, p := range a.routes {
			r.Routes = append(r.Routes, &types.Route{Dst: *network(p), GW: a.gateway.AsSlice()})
		}
	}
	return r
}

// del takes a pod's interface away, and then tells the agent. An agent that does
// not run finds out by itself when it starts: the interface is gone.
func (p *plugin) del(args *skel.CmdArgs) error {
	if err := p.kernel.remove(hostInterface(args.ContainerID, args.IfName)); err != nil {
		return err
	}
	err := p.deletePod(&pb.Attachment{ContainerId: args.ContainerID, Interface: args.IfName}, shortPatience)
	if absent(err) {
		fmt.Fprintf(os.Stderr, "culvert-cni: %v; it will notice when it starts\n", err)
		return nil
	}
	return err
}

// check fails with all that is not as add left it.
func (p *plugin) check(args *skel.CmdArgs) error {
	if p.prev == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs prevResult, the result of ADD", "")
	}
	v, addresses, mtu, err := p.added(args)
	if err != nil {
		return err
	}
	wrong, err := p.kernel.check(v, addresses, mtu)
	if err != nil {
		return err
	}
	w, err := newWanted(p.configuration, args)
	if err != nil {
		return err
	}
	answer, err := ask(p.agent, patience, p.agent.CheckPod, &pb.CheckPodRequest{Attachment: w.attachment, Pod: w.pod})
	if err != nil {
		return err
	}
	if wrong = append(wrong, answer.GetDifferences()...); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// added is what ADD made, by its result.
func (p *plugin) added(args *skel.CmdArgs) (v veth, addresses []address, mtu int, err error) {
	v = veth{host: hostInterface(args.ContainerID, args.IfName), netns: args.Netns, pod: args.IfName}
	index := -1
	for i, x := range p.prev.Interfaces {
		if x.Name == args.IfName && x.Sandbox != "" {
			if v.mac, err = net.ParseMAC(x.Mac); err != nil {
				return v, nil, 0, types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
			}
			index, mtu = i, x.Mtu
		}
	}
	if index < 0 {
		return v, nil, 0, types.NewError(types.ErrInvalidNetworkConfig, "prevResult has no interface "+args.IfName+" in the container", "")
	}
	for _, ip := range p.prev.IPs {
		if ip.Interface == nil || *ip.Interface != index {
			continue
		}
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		gateway, _ := netip.AddrFromSlice(ip.Gateway)
		a := address{addr: addr.Unmap(), gateway: gateway.Unmap()}
		for _, r := range p.prev.Routes {
			to, _ := netip.AddrFromSlice(r.Dst.IP)
			if bits, _ := r.Dst.Mask.Size(); r.GW.Equal(a.gateway.AsSlice()) && to.Unmap().Is4() == a.addr.Is4() {
				a.routes = append(a.routes, netip.PrefixFrom(to.Unmap(), bits))
			}
		}
		addresses = append(addresses, a)
	}
	return v, addresses, mtu, nil
}

// status says whether ADD can be expected to work.
func (p *plugin) status(*skel.CmdArgs) error {
	answer, err := ask(p.agent, noPatience, p.agent.GetPodReadiness, &pb.GetPodReadinessRequest{})
	switch {
	case err != nil:
		return types.NewError(errNotAvailable, err.Error(), "")
	case answer.GetReady():
		return nil
	case answer.GetLimited():
		return types.NewError(errLimitedConnectivity, answer.GetReason(), "")
	}
	return types.NewError(errNotAvailable, answer.GetReason(), "")
}

// gc has the agent forget the attachments that the runtime knows nothing of.
func (p *plugin) gc(*skel.CmdArgs) error {
	if p.Valid == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "GC needs cni.dev/valid-attachments, the attachments that stay", "")
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(p.Valid, &valid); err != nil {
		return types.NewError(types.ErrDecodingFailure, "cannot read cni.dev/valid-attachments", err.Error())
	}
	request := &pb.RetainPodsRequest{Network: p.Name}
	for _, v := range valid {
		request.Valid = append(request.Valid, &pb.Attachment{ContainerId: v.ContainerID, Interface: v.IfName})
	}
	_, err := ask(p.agent, patience, p.agent.RetainPods, request)
	return err
}
