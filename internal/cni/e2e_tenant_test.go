package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const tenantsFile = `  tenants:
    - {name: red, id: 7, namespaces: [default], pools: [10.244.0.0/16, "fd09::/48"], routes: [0.0.0.0/0, "::/0"]}
    - {name: blue, id: 8, namespaces: [default], pools: [10.244.0.0/16, "fd09::/48"]}
    - {name: closed, id: 9, namespaces: [elsewhere], pools: [10.9.0.0/16]}
`

// twoMembers are two nodes on a link, whose daemons know the tenants.
func twoMembers(t *testing.T) (near, far *member) {
	t.Helper()
	near, far = newMemberAt(t, 1, newNode(t, "1.1.0", nil)), newMemberAt(t, 2, newNode(t, "1.1.0", nil))
	netns.Veth(t, near.NS, "up0", far.NS, "up0")
	for _, m := range []*member{near, far} {
		file := fmt.Sprintf(memberFile, m.socket, m.nth) + tenantsFile
		if err := os.WriteFile(filepath.Join(m.dir, "culvert.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		m.connect(t)
		m.start(t)
	}
	return near, far
}

// network is one of a tenant's.
func (m *member) network(t *testing.T, tenant string) *libcni.NetworkConfigList {
	t.Helper()
	text, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": tenant + "-net", "plugins": []map[string]any{
		{"type": "culvert-cni", "socket": m.socket, "tenant": tenant},
	}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// join attaches a new pod to a tenant's network alone.
func (m *member) join(t *testing.T, tenant string) (*netns.NS, []string) {
	t.Helper()
	pod := netns.New(t)
	m.list = m.network(t, tenant)
	return pod, addresses(m.mustAdd(t, attachment(pod)))
}

// Two tenants have the same addresses on two nodes, and the cluster's pods have some of them,
// too. Each reaches its own, on both nodes, and nobody else.
func TestTenantsAcrossNodes(t *testing.T) {
	near, far := twoMembers(t)
	cluster := near.list
	plain := netns.New(t)
	near.mustAdd(t, attachment(plain)) // 10.244.1.2
	redNear, redAddresses := near.join(t, "red")
	redFar, farAddresses := far.join(t, "red")
	blueNear, blueAddresses := near.join(t, "blue")
	const wantNear, wantFar = "[10.244.1.2 fd09:0:0:1::2]", "[10.244.2.2 fd09:0:0:2::2]"
	if got := fmt.Sprint(redAddresses, blueAddresses, farAddresses); got != wantNear+" "+wantNear+" "+wantFar {
		t.Fatalf("addresses %s", got)
	}
	for i, a := range farAddresses {
		near.reaches(t, redNear, a)
		far.reaches(t, redFar, redAddresses[i])
		if err := blueNear.Command("ping", "-c", "1", "-W", "1", a).Run(); err == nil {
			t.Errorf("blue reaches %s, which only red has", a)
		}
		if err := plain.Command("ping", "-c", "1", "-W", "1", a).Run(); err == nil {
			t.Errorf("a pod of the cluster reaches %s, which only red has", a)
		}
	}
	// What answers is the tenant's own pod.
	redFar.Do(t, func() {
		l, err := net.Listen("tcp", farAddresses[0]+":7")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	})
	redNear.Do(t, func() {
		conn, err := net.DialTimeout("tcp", farAddresses[0]+":7", 3*time.Second)
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	})
	for _, to := range []string{"192.0.2.1", "2001:db8::1", "10.244.1.1"} { // the node
		if err := redNear.Command("ping", "-c", "1", "-W", "1", to).Run(); err == nil {
			t.Errorf("red reaches %s, the node", to)
		}
	}
	near.list = near.network(t, "closed")
	if _, err := near.add(t, attachment(netns.New(t))); err == nil || !strings.Contains(err.Error(), `namespace "default" is not among its namespaces`) {
		t.Errorf("a tenant that does not name the namespace: %v", err)
	}
	// They outlive a crash of the agent.
	near.kill(t)
	near.reaches(t, redNear, farAddresses[0])
	near.start(t)
	near.pods(t)
	near.reaches(t, redNear, farAddresses[0])
	for _, of := range []struct {
		m   *member
		net *libcni.NetworkConfigList
		pod *netns.NS
	}{{near, near.network(t, "red"), redNear}, {near, near.network(t, "blue"), blueNear}, {near, cluster, plain}, {far, far.network(t, "red"), redFar}} {
		of.m.list = of.net
		if err := of.m.check(t, attachment(of.pod)); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		if err := of.m.del(t, attachment(of.pod)); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	near.clean(t)
	far.clean(t)
}
