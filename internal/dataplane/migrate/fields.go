package migrate

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// move says that size octets at one offset become those at another.
type move struct{ to, from, size uint32 }

// moves says which octets of a value of one type are which of another: fields of the same
// name, elements of the same number. What has no counterpart is left out.
func moves(to, from btf.Type, at, was uint32) ([]move, error) {
	to, from = btf.UnderlyingType(to), btf.UnderlyingType(from)
	switch to := to.(type) {
	case *btf.Struct:
		from, ok := from.(*btf.Struct)
		if !ok {
			return nil, nil
		}
		return fields(to, from, at, was)
	case *btf.Array:
		from, ok := from.(*btf.Array)
		if !ok {
			return nil, nil
		}
		return elements(to, from, at, was)
	case *btf.Int, *btf.Enum:
		return number(to, from, at, was)
	default:
		return nil, fmt.Errorf("type %v of a table's field is not supported", to)
	}
}

func fields(to, from *btf.Struct, at, was uint32) (out []move, err error) {
	former := map[string]btf.Member{}
	for _, m := range from.Members {
		former[m.Name] = m
	}
	for _, m := range to.Members {
		f, there := former[m.Name]
		if !there {
			continue
		}
		of, err := moves(m.Type, f.Type, at+m.Offset.Bytes(), was+f.Offset.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		out = join(out, of)
	}
	return out, nil
}

func elements(to, from *btf.Array, at, was uint32) (out []move, err error) {
	size, err := btf.Sizeof(to.Type)
	if err != nil {
		return nil, err
	}
	former, err := btf.Sizeof(from.Type)
	if err != nil {
		return nil, err
	}
	for i := range min(to.Nelems, from.Nelems) {
		of, err := moves(to.Type, from.Type, at+i*uint32(size), was+i*uint32(former))
		if err != nil {
			return nil, err
		}
		out = join(out, of)
	}
	return out, nil
}

// number keeps the value of a field that became wider. One that became narrower might not
// fit, so that it is left out.
func number(to, from btf.Type, at, was uint32) ([]move, error) {
	switch from.(type) {
	case *btf.Int, *btf.Enum:
	default:
		return nil, nil
	}
	size, err := btf.Sizeof(to)
	if err != nil {
		return nil, err
	}
	former, err := btf.Sizeof(from)
	if err != nil || former > size {
		return nil, err
	}
	return []move{{at, was, uint32(former)}}, nil
}

// join appends moves, and makes one of two that are side by side.
func join(list, more []move) []move {
	for _, m := range more {
		if n := len(list); n > 0 {
			last := &list[n-1]
			if last.to+last.size == m.to && last.from+last.size == m.from {
				last.size += m.size
				continue
			}
		}
		list = append(list, m)
	}
	return list
}

// conversion makes values of one type from those of another.
type conversion struct {
	size, was uint32 // octets
	moves     []move
}

func newConversion(to, from btf.Type, size, was uint32) (c conversion, err error) {
	c.size, c.was = size, was
	if to == nil || from == nil { // of a map without types
		c.moves = []move{{0, 0, min(size, was)}}
		return c, nil
	}
	c.moves, err = moves(to, from, 0, 0)
	return c, err
}

// convert fills to, which is 0.
func (c *conversion) convert(to, from []byte) {
	for _, m := range c.moves {
		copy(to[m.to:m.to+m.size], from[m.from:m.from+m.size])
	}
}
