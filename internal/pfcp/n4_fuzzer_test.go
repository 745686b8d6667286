package pfcp

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fewestRuns is how often libFuzzer has to try to get beyond the seeds.
const fewestRuns = 300_000

// TestFuzzedMessagesAreReadLikeTheDaemon: libFuzzer looks for messages that reach every branch of
// what the data path reads by, under ASan and UBSan. Of what is read in those, the daemon reads
// the same.
func TestFuzzedMessagesAreReadLikeTheDaemon(t *testing.T) {
	dir := t.TempDir()
	for _, variant := range []string{"n4", "n4-fuzzer"} {
		if out, err := exec.Command("../../bpf/native/build.sh", variant, filepath.Join(dir, variant)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	corpus := filepath.Join(dir, "corpus")
	if err := os.Mkdir(corpus, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range n4Seeds {
		b, err := hex.DecodeString(text)
		if err == nil {
			err = os.WriteFile(filepath.Join(corpus, fmt.Sprint("seed-", i)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(filepath.Join(dir, "n4-fuzzer"), fmt.Sprint("-runs=", max(fewestRuns, *messages)), fmt.Sprint("-seed=", *firstSeed),
		"-max_len=1024", "-use_value_profile=1", "-artifact_prefix="+dir+"/", corpus).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(corpus, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var list [][]byte
	for _, name := range found {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	taken := 0
	for i, m := range n4Read(t, filepath.Join(dir, "n4"), list) {
		if m != nil && n4Agrees(t, list[i], m) {
			taken++
		}
		if t.Failed() {
			t.Fatalf("message %x", list[i])
		}
	}
	t.Logf("%d messages that reach other branches, of which %d can be answered in the data path", len(list), taken)
	if taken <= len(n4Seeds) {
		t.Errorf("only %d of %d messages are compared", taken, len(list))
	}
}
