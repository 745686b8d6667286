package golden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
)

// File is one golden file.
type File struct {
	Path    string
	Network model.Network
	Rows    []Row
}

// Row is one frame and how it must end.
type Row struct {
	Name string `json:"name"`
	Port string `json:"port,omitempty"` // where it is received; the first port unless set
	// After is how long the row waits before it starts, for what meters time:
	// "300ms".
	After string `json:"after,omitempty"`

	In    []map[string]any `json:"in,omitempty"`    // layers
	Frame packet.Hex       `json:"frame,omitempty"` // or the frame as it is

	Of     string                    `json:"of,omitempty"` // the row that this one changes
	With   map[string]map[string]any `json:"with,omitempty"`
	Patch  []Patch                   `json:"patch,omitempty"`
	Cut    int                       `json:"cut,omitempty"`    // octets missing at the end
	Append packet.Hex                `json:"append,omitempty"` // octets behind it: padding
	// Check is what tshark must find in the frame that leaves.
	Check string `json:"check,omitempty"`
	// Wrong says why the frame that leaves is not one that an independent
	// decoder accepts, for rows that carry such a thing through on purpose.
	Wrong string `json:"wrong,omitempty"`
	Want  Want   `json:"want,omitempty"`

	frame   []byte
	ifindex int
	after   time.Duration
}

// Patch overwrites octets of the frame.
type Patch struct {
	At   int        `json:"at"`
	Data packet.Hex `json:"data"`
}

// Want is the end of a journey.
type Want struct {
	Verdict  string                   `json:"verdict"`          // forwarded, replied, passed, slow_path, dropped
	Reason   model.Reason             `json:"reason,omitempty"` // of a drop
	Egress   string                   `json:"egress,omitempty"`
	Out      packet.Hex               `json:"out,omitempty"` // absent: unchanged, or dropped
	Punt     *Punt                    `json:"punt,omitempty"`
	Copies   []Punt                   `json:"copies,omitempty"` // before Punt
	Events   []model.Event            `json:"events,omitempty"`
	Counters map[string]model.Counter `json:"counters,omitempty"`
}

// Punt is the record that the slow path gets; its data is the frame.
type Punt struct {
	Kind    model.PuntKind `json:"kind"`
	Type    uint8          `json:"type,omitempty"`
	Code    uint8          `json:"code,omitempty"`
	Info    uint32         `json:"info,omitempty"`
	Session uint64         `json:"session,omitempty"`
	Rule    uint16         `json:"rule,omitempty"`
	L3      int            `json:"l3"`
	// Rewritten: the packet was for this node again.
	Rewritten bool `json:"rewritten,omitempty"`
	// Data is what the record shows where it is not the frame as received.
	Data packet.Hex `json:"data,omitempty"`
}

// Name is the file's, without directory and ending.
func (f *File) Name() string { return strings.TrimSuffix(filepath.Base(f.Path), ".yaml") }

// Input is the row's frame, and where it is received.
func (r *Row) Input() ([]byte, int) { return r.frame, r.ifindex }

// Wait is how long to wait before the frame.
func (r *Row) Wait() time.Duration { return r.after }

// Load reads a file. Its configuration must be valid.
func Load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path}
	if err := f.parse(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// LoadAll reads all files of a directory.
func LoadAll(directory string) ([]*File, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no golden files there", directory)
	}
	files := make([]*File, len(paths))
	for i, p := range paths {
		if files[i], err = Load(p); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (f *File) parse(data []byte) error {
	var raw struct {
		Config  json.RawMessage `json:"config"`
		Network json.RawMessage `json:"network"`
		Rows    []Row           `json:"rows"`
	}
	if err := sigsyaml.UnmarshalStrict(data, &raw); err != nil {
		return err
	}
	if err := strict(raw.Network, &f.Network); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	c, err := config.Parse(raw.Config)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	f.Network.Config, f.Rows = *c, raw.Rows
	named := map[string]*Row{}
	for i := range f.Rows {
		r := &f.Rows[i]
		if named[r.Name] != nil {
			return fmt.Errorf("row %q: the name is taken: give it another", r.Name)
		}
		if err := f.build(r, named); err != nil {
			return fmt.Errorf("row %q: %w", r.Name, err)
		}
		named[r.Name] = r
	}
	return nil
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// build makes the row's frame.
func (f *File) build(r *Row, named map[string]*Row) error {
	if r.Of != "" {
		base := named[r.Of]
		if base == nil {
			return fmt.Errorf("of: no row above is named %q", r.Of)
		}
		r.inherit(base)
	}
	if err := r.change(); err != nil {
		return err
	}
	if r.After != "" {
		var err error
		if r.after, err = time.ParseDuration(r.After); err != nil {
			return err
		}
	}
	r.frame = r.Frame
	if r.In != nil {
		text, err := json.Marshal(r.In)
		if err != nil {
			return err
		}
		var in packet.Layers
		if err := json.Unmarshal(text, &in); err != nil {
			return err
		}
		r.frame = packet.Frame(in...)
	}
	r.frame = append(append([]byte{}, r.frame[:len(r.frame)-r.Cut]...), r.Append...)
	for _, p := range r.Patch {
		copy(r.frame[p.At:], p.Data)
	}
	for _, p := range f.Network.Ports {
		if r.Port == "" || p.Name == r.Port {
			r.ifindex = p.Ifindex
			return nil
		}
	}
	return fmt.Errorf("port: none is named %q", r.Port)
}

// inherit takes the layers of another row, to be changed.
func (r *Row) inherit(base *Row) {
	for _, layer := range base.In {
		cloned := map[string]any{}
		for name, fields := range layer {
			m, _ := fields.(map[string]any)
			cloned[name] = maps.Clone(m)
		}
		r.In = append(r.In, cloned)
	}
	if r.Frame == nil {
		r.Frame = base.Frame
	}
	if r.Port == "" {
		r.Port = base.Port
	}
}

// change merges With into the layers.
func (r *Row) change() error {
	for name, fields := range r.With {
		found := false
		for _, layer := range r.In {
			if old, ok := layer[name]; ok {
				m, _ := old.(map[string]any)
				if m == nil {
					m = map[string]any{}
				}
				maps.Copy(m, fields)
				layer[name], found = m, true
			}
		}
		if !found {
			return fmt.Errorf("with: %q is none of the layers", name)
		}
	}
	return nil
}

// Wanted is a Result as a golden file has it.
func (f *File) Wanted(r *Row, result model.Result) Want {
	w := Want{Verdict: string(result.Reason), Counters: map[string]model.Counter{}}
	if result.Reason.Drop() {
		w.Verdict, w.Reason = "dropped", result.Reason
	}
	for _, p := range f.Network.Ports {
		if result.Egress == p.Ifindex {
			w.Egress = p.Name
		}
	}
	if !bytes.Equal(result.Out, r.frame) {
		w.Out = result.Out
	}
	if p := result.Punt; p != nil {
		w.Punt = r.punt(p)
	}
	for _, p := range result.Copies {
		w.Copies = append(w.Copies, *r.punt(p))
	}
	w.Events = result.Events
	maps.Copy(w.Counters, result.Counts)
	return w
}

func (r *Row) punt(p *model.Punt) *Punt {
	punt := &Punt{Kind: p.Kind, Type: p.Type, Code: p.Code, Info: p.Info, Session: p.Session, Rule: p.Rule, L3: p.L3, Rewritten: p.Rewritten}
	if !bytes.HasPrefix(r.frame, p.Data) {
		punt.Data = p.Data
	}
	return punt
}

// Update writes wants into the file, one for each row, and keeps the rest.
func Update(path string, wants []Want) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return err
	}
	rows := child(document.Content[0], "rows")
	if rows == nil || len(rows.Content) != len(wants) {
		return fmt.Errorf("%s: rows: want %d", path, len(wants))
	}
	for i, row := range rows.Content {
		setChild(row, "want", wants[i].node())
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func child(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func setChild(mapping *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, scalar(key), value)
}

func scalar(v string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: v} }

// node is a Want for people: the frame in lines of 32 octets.
func (w Want) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	setChild(n, "verdict", scalar(w.Verdict))
	if w.Reason != "" {
		setChild(n, "reason", scalar(string(w.Reason)))
	}
	if w.Egress != "" {
		setChild(n, "egress", scalar(w.Egress))
	}
	if w.Out != nil {
		out := scalar(lines(w.Out))
		out.Style = yaml.LiteralStyle
		setChild(n, "out", out)
	}
	if w.Punt != nil {
		setChild(n, "punt", flow(w.Punt))
	}
	if w.Copies != nil {
		setChild(n, "copies", flow(w.Copies))
	}
	if w.Events != nil {
		setChild(n, "events", flow(w.Events))
	}
	counters := &yaml.Node{Kind: yaml.MappingNode}
	names := make([]string, 0, len(w.Counters))
	for name := range w.Counters {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		setChild(counters, name, flow(w.Counters[name]))
	}
	setChild(n, "counters", counters)
	return n
}

// flow is a value on one line.
func flow(v any) *yaml.Node {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own types
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		panic(err)
	}
	plainStyle(n.Content[0])
	n.Content[0].Style = yaml.FlowStyle
	return n.Content[0]
}

// plainStyle takes JSON's quotes off.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

func lines(b []byte) string {
	var s strings.Builder
	for ; len(b) > 32; b = b[32:] {
		fmt.Fprintf(&s, "%x\n", b[:32])
	}
	fmt.Fprintf(&s, "%x\n", b)
	return s.String()
}
