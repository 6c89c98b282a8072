#include "smlstore/store.h"

#include "directory_dataset.h"
#include "rados_store.h"

namespace sml {

std::shared_ptr<Store> Store::open(const Location& location, const StoreOptions& options) {
  if (!location.is_rados()) return std::make_shared<DirectoryDataset>(location.path, options);
  ObjectsOptions where;
  where.pool = location.pool;
  where.name_space = location.dataset;
  where.conf = location.ceph_conf.empty() ? options.ceph_conf : location.ceph_conf;
  where.user = location.ceph_user.empty() ? options.ceph_user : location.ceph_user;
  where.timeout_s = options.ceph_timeout_s;
  RadosPlace place;
  place.path = std::string(kRadosScheme) + location.pool + "/" + location.dataset;
  place.pool = location.pool;
  place.timeout_s = where.timeout_s;
  try {
    place.objects = open_objects(where);
  } catch (const Error& error) {
    throw error.within(place.path);
  }
  return std::make_shared<RadosStore>(std::move(place), options);
}

}  // namespace sml
