package request

import "testing"

// check reports rows that a table cannot have: more than seen has bits, two of
// one IE, and mandatory IEs that nobody reads.
func check[T any](t *testing.T, name string, g *group[T]) {
	t.Helper()
	if len(g.rows) > 64 {
		t.Errorf("%s has %d rows, seen has 64 bits", name, len(g.rows))
	}
	for i, r := range g.rows {
		if int(g.index[r.ie]) != i+1 {
			t.Errorf("%s has two rows of IE %d", name, r.ie)
		}
		if r.read == nil && (r.is&(mandatory|once|list) != 0 || r.clear != nil) {
			t.Errorf("%s: IE %d is refused, but its row says how it is read", name, r.ie)
		}
		if r.is&list != 0 && r.clear == nil {
			t.Errorf("%s: nothing empties the list of IE %d", name, r.ie)
		}
	}
}

func TestTables(t *testing.T) {
	check(t, "establishment", establishment)
	check(t, "modification", modification)
	check(t, "removal", removal)
	check(t, "PDR", pdrIEs)
	check(t, "PDI", pdiIEs)
	check(t, "Ethernet Packet Filter", ethernetIEs)
	check(t, "FAR", farIEs)
	check(t, "Forwarding Parameters", forwardingIEs)
	check(t, "QER", qerIEs)
	check(t, "URR", urrIEs)
	check(t, "BAR", barIEs)
}
