package topology

import (
	"os"
	"strings"
	"testing"
)

// wantError fails unless err says all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error: want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// parse reads a
func parse(t *testing.T, text string) *Topology {
	t.Helper()
	parsed, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// fixture is a topology of the laboratory's testdata.
func fixture(name string) string {
	text, err := os.ReadFile("../testdata/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	small         = fixture("small")
	clusterOfOne  = fixture("cluster-of-one")
	kubeletsOfOne = fixture("kubelets-of-one")
	withSMF       = fixture("smf")
	transports    = fixture("transports")
	core          = fixture("core")
)
