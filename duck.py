import io, sys, time, threading, datetime, fsspec, duckdb
from tests.parquet import corpus
from tests.parquet.test_view_engines import ViewFileSystem
mode=sys.argv[1]; threads=sys.argv[2]
data=corpus.build("everything-v2")
log=[]
class Slow(io.BytesIO):
    size=len(data)
    def seek(self,*a):
        log.append((id(self),threading.get_ident(),"s"));r=super().seek(*a)
        if mode=="slow": time.sleep(0.0002)
        return r
    def read(self,*a):
        log.append((id(self),threading.get_ident(),"r"));return super().read(*a)
bad=0
for i in range(20):
    with duckdb.connect(config={"threads":threads}) as c:
        c.register_filesystem(ViewFileSystem(lambda _: Slow(data)))
        try: c.sql("SELECT * FROM read_parquet('views://file.parquet')").to_arrow_table()
        except Exception as e: bad+=1; last=repr(e)[:100]
        c.unregister_filesystem("views")
import collections
d=collections.defaultdict(set)
for h,t,k in log: d[h].add(t)
print(mode,threads,"bad",bad, bad and last, "threads per handle", max(len(v) for v in d.values()))
bad=0; log.clear()
for i in range(20):
    with duckdb.connect(config={"threads":threads}) as c:
        try: c.read_parquet(Slow(data)).to_arrow_table()
        except Exception as e: bad+=1; last=repr(e)[:100]
d=collections.defaultdict(set)
for h,t,k in log: d[h].add(t)
print("file object",mode,threads,"bad",bad, bad and last, "threads per handle", max(len(v) for v in d.values()))
