package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// nft takes the rules, which translate one family's Service to the pod, and what
// needs the way back by the node is marked.
func TestTranslation(t *testing.T) {
	in := inCluster(t)
	rules := translation(in)
	for _, want := range []string{
		"ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.1.3:8080",
		"fib daddr type local udp dport 30080 meta mark set 0x4000 dnat to 10.244.1.3:8080",
		"ip saddr 10.244.1.3 meta mark set 0x4000",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q in\n%s", want, rules)
		}
	}
	n := namespace.Named{Name: "culvert-" + unique("nft")}
	if err := n.Create("mark"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Delete("mark"); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second takes the first's place
		if err := n.Do(func() error { return namespace.Pipe(rules, "nft", "-f", "-") }); err != nil {
			t.Error(err)
		}
	}
	err := n.Do(func() error { return namespace.Pipe("no rule", "nft", "-f", "-") })
	wantError(t, err, "nft", "no rule")
}

// A Service is written with both of its protocols, and what only kube-proxy does.
func TestServiceObjects(t *testing.T) {
	in := inCluster(t)
	s := &in.Services[0]
	s.Also, s.Local, s.Affinity = []string{"p"}, true, true
	text, err := json.Marshal([]any{serviceObject(s), endpoints(in, s, topology.IPv4), endpoints(in, s, topology.IPv6)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"clusterIPs":["10.96.0.1"]`, `"ipFamilies":["IPv4"]`, `"type":"NodePort"`, `"externalTrafficPolicy":"Local"`, `"sessionAffinity":"ClientIP"`,
		`"name":"udp","nodePort":30080,"port":80,"protocol":"UDP","targetPort":8080`,
		`"addressType":"IPv4"`, `"addresses":["10.244.1.3"],"conditions":{"ready":true},"nodeName":"x"`, `"addresses":["10.244.1.2"]`,
		`"name":"tcp","port":8080,"protocol":"TCP"`, `"kubernetes.io/service-name":"web"`, `"addresses":["fd00:10:244:1::2"]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if rules := translation(in); strings.Contains(rules, "10.96.0.1") {
		t.Errorf("it is translated without kube-proxy, too:\n%s", rules)
	}
}
