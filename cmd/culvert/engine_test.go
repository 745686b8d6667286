//go:build soak

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// asTopology in the environment makes the test binary be a GoBGP that advertises a topology: the
// value is the address that it listens on.
const asTopology = "CULVERT_TEST_AS_TOPOLOGY"

func init() { roles[asTopology] = advertiseTopology }

// The engine, its peers and their port; all are in the node's namespace.
const (
	engineAddress, headendAddress, topologyAddress = "127.0.0.9", "127.0.0.1", "127.0.0.8"
	bgpPort                                        = 1179
)

// advertiseTopology is four routers, a to b to d and a to c to d, of 1 Mbit/s, the second of which
// is longer. It ends with its input.
func advertiseTopology(address string) error {
	ctx := context.Background()
	s := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), &slog.LevelVar{}))
	go s.Serve()
	if err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: 65001, RouterId: "10.0.0.8", ListenPort: bgpPort, ListenAddresses: []string{address}}}); err != nil {
		return err
	}
	restart := &api.GracefulRestart{Enabled: true, RestartTime: 60}
	err := s.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: engineAddress, PeerAsn: 65001}, Transport: &api.Transport{PassiveMode: true}, GracefulRestart: restart,
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Enabled: true, Family: apiutil.ToApiFamily(bgp.AFI_LS, bgp.SAFI_LS)},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		}},
	}})
	if err != nil {
		return err
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		err = addObjects(s, fmt.Sprintf("0000.0000.000%x", 10+i), name)
		if err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// addObjects advertises a router, its SID and its links.
func addObjects(s *server.BgpServer, id, name string) error {
	of := func(id string, kind bgp.LsTLVType) *bgp.LsTLVNodeDescriptor {
		d := bgp.NewLsTLVNodeDescriptor(&bgp.LsNodeDescriptor{Asn: 65001, IGPRouterID: id}, kind)
		return &d
	}
	local := of(id, bgp.LS_TLV_LOCAL_NODE_DESC)
	header := func(kind bgp.LsNLRIType) bgp.LsNLRI {
		return bgp.LsNLRI{NLRIType: kind, ProtocolID: bgp.LS_PROTOCOL_ISIS_L2, Identifier: 1}
	}
	add := func(kind bgp.LsNLRIType, n bgp.LsNLRIInterface, tlvs ...bgp.LsTLVInterface) error {
		attrs := []bgp.PathAttributeInterface{
			bgp.NewPathAttributeOrigin(0),
			&bgp.PathAttributeLs{PathAttribute: bgp.PathAttribute{Flags: bgp.BGP_ATTR_FLAG_OPTIONAL, Type: bgp.BGP_ATTR_TYPE_LS}, TLVs: tlvs},
		}
		nlri := &bgp.LsAddrPrefix{Type: kind, NLRI: n}
		reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_LS, []bgp.PathNLRI{{NLRI: nlri}}, netip.MustParseAddr(topologyAddress))
		if err != nil {
			return err
		}
		_, err = s.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{{Family: bgp.RF_LS, Nlri: nlri, Attrs: append(attrs, reach)}}})
		return err
	}
	if err := add(bgp.LS_NLRI_TYPE_NODE, &bgp.LsNodeNLRI{LsNLRI: header(bgp.LS_NLRI_TYPE_NODE), LocalNodeDesc: local}, bgp.NewLsTLVNodeName(&name)); err != nil {
		return err
	}
	sid := &bgp.LsTLVSrv6SIDInfo{LsTLV: bgp.LsTLV{Type: bgp.LS_TLV_SRV6_SID_INFO, Length: 16}, SIDs: []netip.Addr{netip.MustParseAddr("2001:db8:" + name + ":e::")}}
	err := add(bgp.LS_NLRI_TYPE_SRV6_SID, &bgp.LsSrv6SIDNLRI{LsNLRI: header(bgp.LS_NLRI_TYPE_SRV6_SID), LocalNodeDesc: local, Srv6SIDInfo: sid},
		bgp.NewLsTLVSrv6EndpointBehavior(&bgp.LsSrv6EndpointBehavior{EndpointBehavior: 1}),
		bgp.NewLsTLVSrv6SIDStructure(&bgp.LsSrv6SIDStructure{LocalBlock: 32, LocalNode: 16, LocalFunc: 16}))
	for _, l := range []struct {
		from, to string
		metric   uint32
	}{{"a", "b", 10}, {"b", "d", 10}, {"a", "c", 20}, {"c", "d", 20}, {"b", "a", 10}, {"d", "b", 10}, {"c", "a", 20}, {"d", "c", 20}} {
		if err != nil || l.from != name {
			continue
		}
		end := func(of string) *netip.Addr {
			a := netip.MustParseAddr(fmt.Sprintf("2001:db8:ff:%s%s::%s", min(l.from, l.to), max(l.from, l.to), of))
			return &a
		}
		bandwidth := float32(1e6 / 8)
		err = add(bgp.LS_NLRI_TYPE_LINK, &bgp.LsLinkNLRI{
			LsNLRI: header(bgp.LS_NLRI_TYPE_LINK), LocalNodeDesc: local, RemoteNodeDesc: of("0000.0000.000"+l.to, bgp.LS_TLV_REMOTE_NODE_DESC),
			LinkDesc: bgp.NewLsLinkTLVs(&bgp.LsLinkDescriptor{InterfaceAddrIPv6: end(l.from), NeighborAddrIPv6: end(l.to)}),
		}, bgp.NewLsTLVMaxLinkBw(&bandwidth), bgp.NewLsTLVIGPMetric(&l.metric))
	}
	return err
}

// headend writes the configuration of router a, whose site is at lan, and makes the rest of the
// network: the other routers are one kernel.
func (n *node) headend(t *testing.T) (site *netns.NS) {
	t.Helper()
	site = netns.New(t)
	netns.Veth(t, n.ns, "lan", site, "eth0")
	site.Run(t, "ethtool", "-K", "eth0", "gro", "on")
	site.Addr(t, "eth0", "10.0.1.1/24")
	site.IP(t, "route add default via 10.0.1.254")
	n.ns.Addr(t, "lan", "10.0.1.254/24")
	n.ns.IP(t, "route add 2001:db8::/32 via 2001:db8:9::9")
	n.ns.Sysctl(t, "net.ipv4.ip_forward", "1")
	n.peer.Addr(t, "eth1", "2001:db8:9::9/64")
	n.peer.Addr(t, "lo", "10.0.2.1/32")
	for _, name := range []string{"net.ipv6.conf.all.forwarding", "net.ipv6.conf.all.seg6_enabled", "net.ipv6.conf.eth1.seg6_enabled", "net.ipv6.conf.lo.seg6_enabled"} {
		n.peer.Sysctl(t, name, "1")
	}
	for _, sid := range []string{"2001:db8:b:e::", "2001:db8:c:e::"} {
		n.peer.IP(t, "-6 route add "+sid+"/64 encap seg6local action End dev eth1")
	}
	n.peer.IP(t, "-6 route add 2001:db8:d:d4::/64 encap seg6local action End.DX4 nh4 10.0.2.1 dev eth1")
	n.peer.IP(t, "-6 route add 2001:db8:a::/48 via 2001:db8:9::1")
	n.peer.IP(t, "route add 10.0.1.0/24 encap seg6 mode encap segs 2001:db8:a:d4:: dev eth1")
	text := "api: {socket: " + n.socket + "}\n" + `
metrics: {listen: 'off'}
interfaces: [{name: eth0, roles: [sr], host: any}, {name: lan, roles: [edge], host: any}]
domain: ['2001:db8::/32']
encapsulation: {source: '2001:db8:9::1'}
locators: [{name: main, prefix: '2001:db8:a::/48'}]
sids: [{sid: '2001:db8:a:d4::/64', behavior: End.DT4, table: 254}]
policies: [{name: bulk, color: 1, endpoint: '2001:db8:d::1', segment_lists: [{segments: ['2001:db8:d:d4::']}]}]
steering: [{prefix: 10.0.2.0/24, policy: bulk}]
bgp: {asn: 65001, router_id: 10.0.0.1, listen: [127.0.0.1], port: 1179, peers: [{address: 127.0.0.9, asn: 65001, passive: true, families: [sr-policy]}]}
`
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return site
}

// network is the engine's file.
func (n *node) network(t *testing.T) string {
	t.Helper()
	path := filepath.Join(n.dir, "network.yaml")
	text := fmt.Sprintf(`
nodes: [{name: a, api: %q, router_id: 10.0.0.1}]
engine:
  apply: true
  every: 1s
  hold: 1s
  write: bgp
  bgp:
    asn: 65001
    router_id: 10.0.0.9
    restart: 60s
    peers:
      - {address: %s, port: %d, asn: 65001, source: %s, families: [sr-policy]}
      - {address: %s, port: %d, asn: 65001, source: %s, families: [link-state]}
`, n.socket, headendAddress, bgpPort, engineAddress, topologyAddress, bgpPort, engineAddress)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// background starts a command that ends with the test.
func background(t *testing.T, c *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{cmd: c, log: &buffer{}, done: make(chan error, 1)}
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(func() {
		if d.cmd.Process.Kill() == nil {
			<-d.done
		}
	})
	return d
}

// bulk is the policy as its node shows it.
func (n *node) bulk(t *testing.T) (lists []srpolicy.SegmentList, active srpolicy.Verdict) {
	t.Helper()
	var all []struct {
		SegmentLists []srpolicy.SegmentList `json:"segment_lists"`
		Paths        []srpolicy.Verdict     `json:"paths"`
	}
	if err := json.Unmarshal([]byte(n.run(t, "policy", "-o", "json")), &all); err != nil || len(all) != 1 || len(all[0].Paths) == 0 {
		t.Fatalf("policies %+v, %v", all, err)
	}
	return all[0].SegmentLists, all[0].Paths[0]
}

// soon waits for something.
func soon(t *testing.T, what string, holds func() bool, logs ...*daemon) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if holds() {
			return
		}
	}
	for _, d := range logs {
		t.Log(d.log)
	}
	t.Fatalf("after a minute still not so: %s", what)
}

// The engine takes the topology from a GoBGP by BGP-LS, sees that a link is too full, and writes
// other lists to a daemon by SAFI 73. It is killed and returns: the lists stay, and no packet is
// lost. It ends, and its paths are withdrawn.
func TestEngineByBGP(t *testing.T) {
	n := newNode(t)
	site, file := n.headend(t), n.network(t)
	n.start(t)
	source := n.ns.Command(os.Args[0])
	source.Env = append(os.Environ(), asTopology+"="+topologyAddress)
	input, err := source.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	background(t, source).says(t, "ready")

	if out := n.run(t, "te", "show", file, "--topology", "bgp-ls"); !strings.Contains(out, "4 nodes, 8 directions of links") || !strings.Contains(out, "a-b   1Mbit/s") {
		t.Errorf("te show: %s", out)
	}
	soon(t, "packets arrive", func() bool { return site.Command("ping", "-c", "1", "-W", "1", "10.0.2.1").Run() == nil })
	ping := background(t, site.Command("ping", "-q", "-i", "0.005", "-s", "1000", "10.0.2.1"))
	engine := func() *daemon {
		return background(t, n.program("te", "run", file, "--topology", "bgp-ls"))
	}
	first := engine()
	soon(t, "the engine's lists are there", func() bool { _, active := n.bulk(t); return active.Preference == 150 }, first)
	lists, active := n.bulk(t)
	if len(lists) < 2 || !strings.HasPrefix(active.Path, "bgp:10.0.0.9:") {
		t.Errorf("lists %v of %+v", lists, active)
	}
	if err := first.end(t, syscall.SIGKILL); err == nil {
		t.Error("killed, and no error")
	}
	same := func() bool {
		now, path := n.bulk(t)
		return path.Path == active.Path && fmt.Sprint(now) == fmt.Sprint(lists)
	}
	for range 20 {
		if time.Sleep(100 * time.Millisecond); !same() {
			t.Fatal("the killed engine's lists are gone")
		}
	}
	second := engine()
	second.says(t, "candidate paths of an earlier engine; they stay")
	soon(t, "it does rounds", func() bool {
		if !same() {
			t.Fatal("the lists are gone when the engine returns")
		}
		out, err := n.program("te", "status", "-o", "json").Output()
		var s struct {
			Counts struct{ Rounds, Failed, Changes uint64 }
		}
		return err == nil && json.Unmarshal(out, &s) == nil && s.Counts.Rounds-s.Counts.Failed >= 5
	}, second)
	if err := ping.end(t, syscall.SIGINT); err != nil || !strings.Contains(ping.log.String(), " 0% packet loss") {
		t.Errorf("ping: %v: %s", err, ping.log)
	}
	t.Log(ping.log)
	if err := second.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("the engine: %v: %s", err, second.log)
	}
	if out := n.run(t, "te", "withdraw", file); !strings.Contains(out, "a: 1 candidate paths removed") {
		t.Errorf("withdraw: %s", out)
	}
	if _, active := n.bulk(t); active.Path != "" {
		t.Errorf("after withdraw packets take %+v", active)
	}
}
