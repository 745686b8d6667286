package pin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// A layout is recorded as HASH:KEY;VALUE, so that a later build can read the entries: the kernel
// shows the types of a map only to who has CAP_SYS_ADMIN. Types are written as
//
//	i4                        a number of 4 octets
//	[3]i4                     an array
//	port{8,flags@0i4,mtu@4i4} a structure of 8 octets, and its fields with their offsets
//	-                         none
const maxRecord = 4095 // what a symbolic link holds

// records are what is in ring buffers, which the kernel knows no types of.
var records = map[string]string{abi.MapSlowPath: "punt", abi.MapSessionEvents: "session_event", abi.MapTraceEvents: "trace_event",
	abi.MapFlowRecords: "flow_record", abi.MapN4Events: "n4_event"}

// layoutHash is equal for two maps if their keys and values, or records, have the same
// fields in the same places. Sizes alone would let a field change its place.
func layoutHash(spec *ebpf.CollectionSpec, name string) string {
	h, of := sha256.New(), spec.Maps[name]
	types := []btf.Type{of.Key, of.Value}
	if record, is := records[name]; is {
		var t *btf.Struct
		if spec.Types.TypeByName(record, &t) == nil {
			types = append(types, t)
		}
	}
	for _, t := range types {
		writeLayout(h, t)
	}
	if flags := programFlags(spec, of); flags != 0 {
		fmt.Fprintf(h, "programs %d", flags)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// programFlags are those that all programs have that use a map of programs or devices: the kernel
// lets no others use it.
func programFlags(spec *ebpf.CollectionSpec, of *ebpf.MapSpec) uint32 {
	program := spec.Programs[abi.ProgCulvertXdp]
	if of.Type == ebpf.ProgramArray || of.Type == ebpf.DevMap || of.Type == ebpf.CPUMap {
		return program.Flags
	}
	return 0
}

func writeLayout(w io.Writer, t btf.Type) {
	switch t := t.(type) {
	case nil:
		fmt.Fprint(w, "none;")
	case *btf.Struct:
		fmt.Fprintf(w, "struct %d{", t.Size)
		for _, m := range t.Members {
			fmt.Fprintf(w, "%s %d ", m.Name, m.Offset)
			writeLayout(w, m.Type)
		}
		fmt.Fprint(w, "}")
	case *btf.Array:
		fmt.Fprintf(w, "[%d]", t.Nelems)
		writeLayout(w, t.Type)
	default:
		if u := btf.UnderlyingType(t); u != t {
			writeLayout(w, u)
			return
		}
		size, err := btf.Sizeof(t)
		fmt.Fprintf(w, "%T %d %v;", t, size, err)
	}
}

// layoutRecord is what is recorded of a map.
func layoutRecord(spec *ebpf.CollectionSpec, name string) (string, error) {
	of := spec.Maps[name]
	var text strings.Builder
	text.WriteString(layoutHash(spec, name) + ":")
	for i, t := range []btf.Type{of.Key, of.Value} {
		if i > 0 {
			text.WriteByte(';')
		}
		if err := writeType(&text, t); err != nil {
			return "", fmt.Errorf("layout of map %s: %w", name, err)
		}
	}
	if text.Len() > maxRecord {
		return "", fmt.Errorf("layout of map %s: its record has %d octets, at most %d fit", name, text.Len(), maxRecord)
	}
	return text.String(), nil
}

func writeType(w *strings.Builder, t btf.Type) error {
	if t == nil {
		w.WriteByte('-')
		return nil
	}
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		fmt.Fprintf(w, "%s{%d", t.Name, t.Size)
		for _, m := range t.Members {
			fmt.Fprintf(w, ",%s@%d", m.Name, m.Offset.Bytes())
			if err := writeType(w, m.Type); err != nil {
				return err
			}
		}
		w.WriteByte('}')
	case *btf.Array:
		fmt.Fprintf(w, "[%d]", t.Nelems)
		return writeType(w, t.Type)
	case *btf.Union: // in what the kernel defines: nothing of it is copied
		fmt.Fprintf(w, "[%d]i1", t.Size)
	case *btf.Int, *btf.Enum:
		size, err := btf.Sizeof(t)
		fmt.Fprintf(w, "i%d", size)
		return err
	default:
		return fmt.Errorf("type %v is not supported", t)
	}
	return nil
}

// Types are those of a map's keys and values, as far as they are recorded.
type Types struct{ Key, Value btf.Type }

// types reads what is recorded of a map: its hash, and its types. Builds before these were
// recorded left the hash alone.
func (p *Dir) types(name string) (hash string, t Types, err error) {
	record, err := os.Readlink(p.at(dirLayout, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", t, nil
	}
	if err != nil {
		return "", t, fmt.Errorf("layout of pinned map %s: %w", name, err)
	}
	hash, text, recorded := strings.Cut(record, ":")
	if !recorded {
		return hash, t, nil
	}
	r := &reader{text: text}
	t.Key = r.typ()
	r.want(";")
	t.Value = r.typ()
	if r.failed || r.text != "" {
		return "", Types{}, fmt.Errorf("layout of pinned map %s: cannot read %q", name, record)
	}
	return hash, t, nil
}

// reader reads types. After a mistake it reads nothing more.
type reader struct {
	text   string
	failed bool
}

func (r *reader) want(s string) {
	if !strings.HasPrefix(r.text, s) {
		r.failed = true
		return
	}
	r.text = r.text[len(s):]
}

// until is the text before one of some octets.
func (r *reader) until(ends string) string {
	i := strings.IndexAny(r.text, ends)
	if i < 0 {
		r.failed = true
		return ""
	}
	word := r.text[:i]
	r.text = r.text[i:]
	return word
}

func (r *reader) number() uint32 {
	i := 0
	for i < len(r.text) && r.text[i] >= '0' && r.text[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(r.text[:i], 10, 24)
	r.failed = r.failed || err != nil
	r.text = r.text[i:]
	return uint32(n)
}

func (r *reader) typ() btf.Type {
	switch {
	case r.failed || r.text == "":
		r.failed = true
	case r.text[0] == '-':
		r.text = r.text[1:]
	case r.text[0] == '[':
		r.text = r.text[1:]
		n := r.number()
		r.want("]")
		return &btf.Array{Index: &btf.Int{Size: 4}, Nelems: n, Type: r.typ()}
	case len(r.text) > 1 && r.text[0] == 'i' && r.text[1] >= '1' && r.text[1] <= '9':
		r.text = r.text[1:]
		return &btf.Int{Size: r.number()}
	default:
		return r.structure()
	}
	return nil
}

func (r *reader) structure() btf.Type {
	s := &btf.Struct{Name: r.until("{")}
	r.want("{")
	s.Size = r.number()
	for !r.failed && strings.HasPrefix(r.text, ",") {
		r.want(",")
		m := btf.Member{Name: r.until("@")}
		r.want("@")
		m.Offset = btf.Bits(8 * r.number())
		m.Type = r.typ()
		s.Members = append(s.Members, m)
	}
	r.want("}")
	return s
}
