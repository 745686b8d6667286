package pfcp

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fewestRuns is how often libFuzzer has to try to get beyond the seeds.
const fewestRuns = 200_000

// n4ReadsFuzzed compares all messages that the data path reads while libFuzzer looks for such
// that reach other branches, under ASan and UBSan.
func n4ReadsFuzzed(t *testing.T, reader string) {
	corpus, taken := t.TempDir(), filepath.Join(t.TempDir(), "taken")
	for i, text := range n4Seeds {
		b, err := hex.DecodeString(text)
		if err == nil {
			err = os.WriteFile(filepath.Join(corpus, fmt.Sprint("seed-", i)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runs := max(fewestRuns, *messages)
	fuzzer := exec.Command(n4Build(t, "n4-fuzzer"), fmt.Sprint("-runs=", runs), fmt.Sprint("-seed=", *firstSeed),
		"-max_len=1024", "-use_value_profile=1", "-artifact_prefix="+t.TempDir()+"/", corpus)
	fuzzer.Env = append(os.Environ(), "N4_READ="+taken)
	if out, err := fuzzer.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read, answerable := n4CompareFile(t, reader, taken)
	found, err := os.ReadDir(corpus)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages reach other branches; of %d the data path reads %d and can answer %d", len(found), runs, read, answerable)
	if len(found) <= len(n4Seeds) || answerable <= 10*len(n4Seeds) {
		t.Error("too few messages are compared")
	}
}

// n4CompareFile compares the messages of a file, each behind its length.
func n4CompareFile(t *testing.T, reader, name string) (read, answerable int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for end := false; !end; {
		var list [][]byte
		for len(list) < n4Batch && !end {
			var length uint16
			if err := binary.Read(in, binary.NativeEndian, &length); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				end = true
				continue
			}
			b := make([]byte, length)
			if _, err := io.ReadFull(in, b); err != nil {
				t.Fatal(err)
			}
			list = append(list, b)
		}
		read += len(list)
		answerable += len(n4Compare(t, reader, list))
	}
	return read, answerable
}
