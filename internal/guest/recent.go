package guest

// recentSize is how many ids a Recent remembers: more than can be under way at once
// on a connection.
const recentSize = 4096

// Recent remembers the last ids that were added: those that both sides have done
// with, of which a message may still be under way. The zero value is empty.
type Recent struct {
	ids  map[string]bool
	list []string
	next int
}

// Add remembers id and forgets the oldest when there are too many.
func (r *Recent) Add(id string) {
	if r.ids[id] {
		return
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[id] = true
	if len(r.list) < recentSize {
		r.list = append(r.list, id)
		return
	}
	delete(r.ids, r.list[r.next])
	r.list[r.next] = id
	r.next = (r.next + 1) % recentSize
}

// Has says whether id is remembered.
func (r *Recent) Has(id string) bool { return r.ids[id] }
