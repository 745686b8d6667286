package behaviordoc

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

func TestDocumentIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := Write(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/reference/behaviors.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/reference/behaviors.md differs from the behaviour table: run go generate ./srv6")
	}
}

func TestDocumentHasEveryRow(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, row := range srv6.Table() {
		_, section, found := strings.Cut(text, "\n## "+row.Name+"\n")
		if !found {
			t.Errorf("%s has no section", row.Name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, want := range append([]string{row.Section, row.Example, row.Description}, row.Required...) {
			if !strings.Contains(section, want) {
				t.Errorf("section of %s lacks %q", row.Name, want)
			}
		}
	}
}

func TestCodepointsOfFlavors(t *testing.T) {
	row, _ := srv6.Lookup(srv6.End)
	got := codepoints(row)
	for _, want := range []string{"1; with PSP: 2;", "with PSP + USP + USD: 31", "with PSP + USP + USD + NEXT-C-SID: 50"} {
		if !strings.Contains(got, want) {
			t.Errorf("codepoints of End are %q, without %q", got, want)
		}
	}
	row, _ = srv6.Lookup(srv6.EndLimit)
	if got := codepoints(row); got != "41" {
		t.Errorf("codepoints of End.Limit are %q: its flavors have none", got)
	}
}
