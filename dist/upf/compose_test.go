// Package upf_test looks at how a UPF or gateway is run in containers: compose.yaml, and the chart.
package upf_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// load reads a compose file as docker compose does: by the schema of the specification.
func load(ctx context.Context, text string, environment map[string]string) (*types.Project, error) {
	return loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir: "/srv", ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(text)}}, Environment: environment,
	})
}

func TestCompose(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := load(t.Context(), string(text), map[string]string{"IMAGE": "r.example/upf:v1"})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Services["culvert"]
	if s.Image != "r.example/upf:v1" || s.NetworkMode != "host" || !s.ReadOnly || strings.Join(s.Command, " ") != "run --config /etc/culvert/culvert.yaml" {
		t.Errorf("%+v", s)
	}
	if s.Privileged || strings.Join(s.CapDrop, " ") != "ALL" || strings.Join(s.CapAdd, " ") != "BPF PERFMON NET_ADMIN NET_RAW" {
		t.Errorf("it may do more than it needs: add %v, drop %v", s.CapAdd, s.CapDrop)
	}
	// What outlives the container is the machine's, as without one.
	mounts := map[string]string{}
	for _, v := range s.Volumes {
		mounts[v.Target] = v.Source
	}
	for target, source := range map[string]string{"/etc/culvert/culvert.yaml": "/srv/culvert.yaml", "/sys/fs/bpf": "/sys/fs/bpf", "/var/lib/culvert": "/var/lib/culvert", "/run/culvert": "/run/culvert"} {
		if mounts[target] != source {
			t.Errorf("%s is %q: want %s", target, mounts[target], source)
		}
	}
	// The schema is asked.
	if _, err := load(t.Context(), strings.Replace(string(text), "network_mode:", "network_modes:", 1), nil); err == nil || !strings.Contains(err.Error(), "network_modes") {
		t.Errorf("a field that no service has: %v", err)
	}
}
