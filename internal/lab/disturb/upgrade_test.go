package disturb

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"
)

// TestRebuild wants another object, that reads the same.
func TestRebuild(t *testing.T) {
	object, err := os.ReadFile("../../dataplane/abi/datapath_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if n := Rebuild(bytes.Clone(self)); n != 0 {
		t.Errorf("%d objects in a program without any", n)
	}
	program := append(bytes.Clone(self), object...)
	program = append(program, object...)
	if n := Rebuild(program); n != 2 {
		t.Errorf("%d objects of 2", n)
	}
	other := program[len(self) : len(self)+len(object)]
	if bytes.Equal(other, object) {
		t.Error("the object is the same")
	}
	was, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	is, err := elf.NewFile(bytes.NewReader(other))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range was.Sections {
		a, err1 := s.Data()
		b, err2 := is.Sections[i].Data()
		if s.Type != elf.SHT_NOBITS && (err1 != nil || err2 != nil || !bytes.Equal(a, b) || s.Name != is.Sections[i].Name) {
			t.Errorf("section %s differs: %v, %v", s.Name, err1, err2)
		}
	}
}
