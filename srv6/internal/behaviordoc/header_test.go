package behaviordoc

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestHeaderIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := WriteHeader(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../bpf/srv6/behaviors.h")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("bpf/srv6/behaviors.h differs from the behaviour table: run go generate ./srv6")
	}
}

// The numbers are pinned in maps, so that none of them may ever change.
func TestHeaderKeepsNumbers(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHeader(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\tBEHAVIOR_NONE = 0,\n\tEND = 1,\n", "\tEND_DT46 = 9,\n", "\tEND_B6_ENCAPS_RED = 11,\n", "\tEND_M_GTP6_D_DI = 15,\n",
		"\tEND_M_GTP4_E = 17,\n", "\tH_M_GTP4_D = 22,\n", "\tFLAVOR_USD = 4,\n\tFLAVOR_NEXT_C_SID = 8,\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the header lacks %q", want)
		}
	}
}
