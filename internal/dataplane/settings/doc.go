// Package settings owns the one entry of map settings: what the handling of every
// packet depends on, and the lists by which locators and UE pools lead to ranges
// of other tables.
//
// Book writes the entry word by word, so that no packet sees a half of a list's
// element. A locator or pool that goes makes room for those that come; who
// changes the settings does it in this order:
//
//  1. Ranges without add: what stays. Move what lives in the others (Leaving).
//  2. Write an entry with these, and clear the ranges that went.
//  3. Ranges with add, clear the new ones, and Write.
//
// Package dataplane does so in SetSettings. Callers hold the data path's lock.
package settings
