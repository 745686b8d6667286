package native

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// inputs are few: `make fuzz` runs as many as one likes.
const inputs = "200000"

// TestNative lets libFuzzer run inputs through the data path, once where a
// touch of memory outside the packet is fatal, and once where the use of what
// nobody wrote is.
func TestNative(t *testing.T) {
	if _, err := exec.LookPath("clang-19"); err != nil {
		t.Fatal("needs clang-19 and its sanitizers: apt-get install clang-19 libclang-rt-19-dev")
	}
	for _, variant := range []struct{ name, inputs string }{
		{"memory", inputs},
		{"initialized", "50000"}, // three times as slow
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			fuzzer := build(t, variant.name)
			out := run(t, fuzzer, "-runs="+variant.inputs)
			if !bytes.Contains(out, []byte("Done "+variant.inputs+" runs")) {
				t.Fatalf("did not run %s inputs:\n%s", variant.inputs, out)
			}
			if covered(t, out) < 1000 {
				t.Errorf("the inputs reach little of the data path:\n%s", out)
			}
		})
	}
}

func build(t *testing.T, variant string) string {
	t.Helper()
	fuzzer := filepath.Join(t.TempDir(), variant)
	// Without inlining clang takes a third of the time.
	if out, err := exec.Command("./build.sh", variant, fuzzer, "-Dalways_inline=unused").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return fuzzer
}

// run starts the fuzzer in a directory of its own, where it leaves what it
// finds.
func run(t *testing.T, fuzzer string, args ...string) []byte {
	t.Helper()
	args = append([]string{"-seed=1", "-max_len=512", "-verbosity=1", "-print_final_stats=1"}, args...)
	cmd := exec.Command(fuzzer, args...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(out))
	}
	return out
}

// tail is what matters of the fuzzer's output: the finding is at its end.
func tail(out []byte) []byte { return out[max(0, len(out)-6000):] }

var coverage = regexp.MustCompile(`DONE\s+cov: (\d+)`)

func covered(t *testing.T, out []byte) (edges int) {
	t.Helper()
	m := coverage.FindSubmatch(out)
	if m == nil {
		t.Fatalf("no coverage reported:\n%s", tail(out))
	}
	for _, digit := range m[1] {
		edges = 10*edges + int(digit-'0')
	}
	return edges
}
