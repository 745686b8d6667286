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
const fewestRuns = 200_000

// n4ReadsFuzzed compares messages that reach other branches of what the data path reads by:
// libFuzzer looks for them, under ASan and UBSan.
func n4ReadsFuzzed(t *testing.T, reader string) {
	corpus := t.TempDir()
	for i, text := range n4Seeds {
		b, err := hex.DecodeString(text)
		if err == nil {
			err = os.WriteFile(filepath.Join(corpus, fmt.Sprint("seed-", i)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(n4Build(t, "n4-fuzzer"), fmt.Sprint("-runs=", max(fewestRuns, *messages)), fmt.Sprint("-seed=", *firstSeed),
		"-max_len=1024", "-use_value_profile=1", "-artifact_prefix="+t.TempDir()+"/", corpus).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := os.ReadDir(corpus)
	if err != nil {
		t.Fatal(err)
	}
	var list [][]byte
	for _, f := range found {
		b, err := os.ReadFile(filepath.Join(corpus, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	answerable := n4Compare(t, reader, list)
	t.Logf("%d messages reach other branches, of which %d can be answered in the data path", len(list), len(answerable))
	if len(answerable) <= len(n4Seeds) {
		t.Errorf("only %d of %d messages are compared", len(answerable), len(list))
	}
}
