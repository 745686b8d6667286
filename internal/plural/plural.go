// Package plural writes how many there are of something.
package plural

import "strconv"

// Of is "1 session" or "2 sessions". The noun takes an s.
func Of(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
