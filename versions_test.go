package culvert_test

import (
	"os"
	"regexp"
	"testing"
)

// TestKubernetesVersions: what the product speaks to Kubernetes by, the cluster of the
// laboratories, and the tests that are run against it are of one version.
func TestKubernetesVersions(t *testing.T) {
	want := ""
	for _, row := range []struct{ file, module, major string }{
		{"go.mod", "k8s.io/client-go", "v0"}, {"go.mod", "k8s.io/api", "v0"}, {"go.mod", "k8s.io/apimachinery", "v0"},
		{"tools/cluster/kubernetes/go.mod", "k8s.io/kubernetes", "v1"}, {"tools/cluster/e2e/go.mod", "k8s.io/kubernetes", "v1"},
	} {
		text, err := os.ReadFile(row.file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(row.module) + ` ` + row.major + `\.(\d+\.\d+)\b`).FindSubmatch(text)
		if m == nil {
			t.Errorf("%s requires no %s %s", row.file, row.module, row.major)
			continue
		}
		if want == "" {
			want = string(m[1])
		}
		if string(m[1]) != want {
			t.Errorf("%s has %s %s.%s, want %s.%s as of client-go: change both", row.file, row.module, row.major, m[1], row.major, want)
		}
	}
}
