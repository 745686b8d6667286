package behaviordoc

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

const introduction = `# SRv6 behaviours

<!-- Generated from srv6.Table by "go generate ./srv6". Do not edit. -->

What each behaviour is called, where it is defined, and how it is configured. How packets are
treated in detail stands in [semantics.md](semantics.md).

- **Codepoint** is IANA's number in "SRv6 Endpoint Behaviors". Headend behaviours have none.
- **Headroom** is by how many bytes a frame grows at most, with the longest segment list (a negative
  number: by how many it shrinks at least). An egress MTU has to leave that much room.
- Names are read in any case, and with underscores for dots: ` + "`end_m_gtp4_e`" + ` is End.M.GTP4.E.

`

// Write writes the whole document.
func Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	out.WriteString(introduction)
	writeSummary(out)
	out.WriteString("\n## Parameters of SIDs\n\n| parameter | what to give |\n|---|---|\n")
	for _, p := range srv6.Parameters() {
		fmt.Fprintf(out, "| `%s` | %s |\n", p.Name, p.Description)
	}
	for _, row := range srv6.Table() {
		writeRow(out, row)
	}
	return out.Flush()
}

// writeSummary is one table of all behaviours.
func writeSummary(out *bufio.Writer) {
	out.WriteString("| behaviour | codepoint | defined in | flavors | headroom |\n|---|---|---|---|---|\n")
	for _, row := range srv6.Table() {
		anchor := strings.ReplaceAll(strings.ToLower(row.Name), ".", "") // as renderers name a heading's link
		fmt.Fprintf(out, "| [%s](#%s) | %s | %s | %s | %+d |\n", row.Name, anchor,
			codepoint(row.Behavior), row.Section, flavors(row), row.Headroom)
	}
}

// writeRow is the section of one behaviour.
func writeRow(out *bufio.Writer, row srv6.Row) {
	fmt.Fprintf(out, "\n## %s\n\n%s %s.\n\n", row.Name, row.Name, row.Description)
	fmt.Fprintf(out, "- Defined in %s\n", row.Section)
	if row.Headend {
		out.WriteString("- Headend behaviour: a property of a policy or a steering entry; no codepoint\n")
	} else {
		fmt.Fprintf(out, "- Codepoint: %s\n- LOC:FUNC: at most %d bits\n", codepoints(row), row.MaxLength)
	}
	list(out, "Required", row.Required)
	list(out, "At least one of", row.OneOf)
	list(out, "Optional", row.Optional)
	if row.Takes("block_length") {
		out.WriteString("- With NEXT-C-SID: `block_length`\n")
	}
	if len(row.Flavors) > 0 {
		fmt.Fprintf(out, "- Flavors: %s\n", flavors(row))
	}
	fmt.Fprintf(out, "- Headroom: %+d bytes\n\n```yaml\n%s```\n", row.Headroom, row.Example)
}

func list(out *bufio.Writer, title string, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(out, "- %s: `%s`\n", title, strings.Join(names, "`, `"))
	}
}

func flavors(row srv6.Row) string {
	var names []string
	for _, f := range row.Flavors {
		names = append(names, f.String())
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

func codepoint(b srv6.Behavior) string {
	if n, ok := srv6.Codepoint(b); ok {
		return fmt.Sprint(n)
	}
	return "none"
}

// codepoints are those of each combination of the row's flavors that has one.
func codepoints(row srv6.Row) string {
	text := codepoint(row.Behavior)
	for set := 1; set < 1<<len(row.Flavors); set++ {
		var chosen []srv6.Flavor
		var names []string
		for i, f := range row.Flavors {
			if set>>i&1 == 1 {
				chosen, names = append(chosen, f), append(names, f.String())
			}
		}
		if n, ok := srv6.Codepoint(row.Behavior, chosen...); ok {
			text += fmt.Sprintf("; with %s: %d", strings.Join(names, " + "), n)
		}
	}
	return text
}
