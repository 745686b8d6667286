package port

import (
	"errors"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// originKey is the key of class_by_source for an origin of an interface's packets.
func originKey(ifindex int, o class.Origin) abi.Lpm6Key {
	k := abi.Lpm6Key{Prefixlen: 32 + uint32(o.Prefix.Bits()), Table: uint32(ifindex) | uint32(o.VLAN)<<abi.ClassTableCLASS_VLAN_SHIFT}
	if o.Prefix.Addr().Is4() {
		k.Table |= uint32(abi.ClassTableCLASS_IPV4)
	}
	copy(k.Addr.B[:], o.Prefix.Masked().Addr().AsSlice())
	return k
}

// ifindexOf is that of a key of class_by_source.
func ifindexOf(k abi.Lpm6Key) int { return int(k.Table & (1<<abi.ClassTableCLASS_VLAN_SHIFT - 1)) }

// putOrigins has the packets of an interface classified by where they come from. Each
// packet has its old classifier or its new one.
func (t *Table) putOrigins(ifindex int, origins []class.Origin) error {
	if len(origins) == 0 {
		return nil
	}
	if t.origins[ifindex] == nil {
		t.origins[ifindex] = map[abi.Lpm6Key]bool{}
	}
	for _, o := range origins {
		k := originKey(ifindex, o)
		index, err := t.classifiers.take(user{ifindex, k}, abi.Classifier{Column: o.Classifier})
		if err != nil {
			return err
		}
		t.origins[ifindex][k] = true
		if err := t.bySource.Put(k, index); err != nil {
			return err
		}
		t.classifiers.leave(user{ifindex, k}, index)
	}
	return nil
}

// dropOrigins deletes the origins of an interface that are not among these.
func (t *Table) dropOrigins(ifindex int, but []class.Origin) error {
	stay := map[abi.Lpm6Key]bool{}
	for _, o := range but {
		stay[originKey(ifindex, o)] = true
	}
	var errs []error
	for k := range t.origins[ifindex] {
		if stay[k] {
			continue
		}
		if err := t.bySource.Delete(k); err != nil {
			errs = append(errs, err)
			continue
		}
		t.classifiers.leave(user{ifindex, k}, 0)
		delete(t.origins[ifindex], k)
	}
	if len(t.origins[ifindex]) == 0 {
		delete(t.origins, ifindex)
	}
	return errors.Join(errs...)
}
