package topology

import "testing"

// TestRepeat: one element of a list stands for several, with texts and numbers in them.
func TestRepeat(t *testing.T) {
	for text, want := range map[string]string{
		"a: [{repeat: 2, name: u%d, teid: 1%d, deep: {list: [10.0.0.%d/24]}}, x]": "a:\n" +
			"- deep:\n    list:\n    - 10.0.0.1/24\n  name: u1\n  teid: 11\n" +
			"- deep:\n    list:\n    - 10.0.0.2/24\n  name: u2\n  teid: 12\n- x\n",
		`a: [x, {repeat: 2, item: "dev u%d metric %d"}]`: "a:\n- x\n- dev u1 metric 1\n- dev u2 metric 2\n",
		"a: [{name: 100%, teid: \"7\"}]":                 "a:\n- name: 100%\n  teid: \"7\"\n",
		"a: [{repeat: 0, item: x}]":                      "a: []\n",
	} {
		got, err := repeat([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", text, err, got)
		}
	}
	if _, err := repeat([]byte("{a: 1, a: 2}")); err == nil {
		t.Error("a field may come twice")
	}
}
