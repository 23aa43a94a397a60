//! Pointer files of Git LFS, seen without it.

use std::path::{Path, PathBuf};

use super::scan::{Scan, split};
use super::source::Source;
use super::{LfsPolicy, Oid, SnapshotError, TreePath, Unseen};

/// Pointers are shorter; longer files are content.
const LONGEST: u64 = 1024;
const SIGNATURE: &str = "version https://git-lfs.github.com/spec/v1\n";

/// Counts pointer files, names the content that stays behind, and with [`LfsPolicy::FetchIfLocal`] puts the content that this
/// machine has into the scan's tree.
pub(super) async fn settle(
    source: &Source,
    scan: &mut Scan,
    policy: LfsPolicy,
) -> Result<(u64, Vec<Unseen>), SnapshotError> {
    let Some(repository) = &source.repository else { return Ok((0, Vec::new())) };
    if !mentioned(&source.root, scan, &repository.common) {
        return Ok((0, Vec::new()));
    }
    // Our own attributes switch every filter off: this one question needs those of the tree, and runs nothing.
    let mut asking = scan.repo.clone();
    let plain = scan.repo.git_dir.join("with-attributes");
    super::program::write_git_dir(&plain, source.format, "")?;
    let theirs = std::fs::read(repository.common.join("info/attributes")).unwrap_or_default();
    std::fs::write(plain.join("info/attributes"), theirs).map_err(super::io(&plain))?;
    asking.git_dir = plain;
    let listed = asking.ask(&["ls-files", "-z", "--", ":(attr:filter=lfs)"], b"").await?;
    let (mut pointers, mut unseen, mut replaced) = (0, Vec::new(), Vec::new());
    for bytes in split(&listed) {
        let path = TreePath::parse(bytes)?;
        let Some(digest) = pointer(&path.under(&source.root)) else { continue };
        let content = content(&repository.common, &digest);
        match (policy, content) {
            (LfsPolicy::FetchIfLocal, Some(content)) => replaced.push((path, content)),
            _ => {
                pointers += 1;
                unseen.push(Unseen::LfsContent { path });
            }
        }
    }
    for (path, content) in &replaced {
        let Some(content) = content.to_str() else { continue };
        let oid = scan.repo.writing().ask(&["hash-object", "-w", "--no-filters", "--", content], b"").await?;
        let mode = if executable(&path.under(&source.root)) { "100755" } else { "100644" };
        let line = [format!("{mode} {}\t", Oid::answer(&oid)?).as_bytes(), path.as_bytes(), b"\0"].concat();
        scan.repo.ask(&["update-index", "-z", "--index-info"], &line).await?;
    }
    if !replaced.is_empty() {
        let tree = scan.repo.write_tree().await?;
        if tree.code != 0 {
            return Err(scan.repo.failed(&["write-tree"], tree.stderr));
        }
        scan.tree = Oid::answer(&tree.stdout)?;
    }
    Ok((pointers, unseen))
}

/// Cheap: does any attributes file speak of LFS?
fn mentioned(root: &Path, scan: &Scan, common: &Path) -> bool {
    let speaks =
        |path: PathBuf| std::fs::read(path).is_ok_and(|text| memchr::memmem::find(&text, b"filter=lfs").is_some());
    let files = scan.index.entries.iter().filter(|entry| entry.path.ends_with(b".gitattributes"));
    let mut paths = files.filter_map(|entry| TreePath::parse(&entry.path).ok()).map(|path| path.under(root));
    paths.any(speaks) || speaks(common.join("info/attributes"))
}

/// The digest that a pointer file names.
fn pointer(path: &Path) -> Option<String> {
    let meta = path.symlink_metadata().ok().filter(|meta| meta.is_file() && meta.len() < LONGEST)?;
    let text = std::fs::read_to_string(path).ok().filter(|text| text.len() as u64 == meta.len())?;
    let digest = text.strip_prefix(SIGNATURE)?.lines().find_map(|line| line.strip_prefix("oid sha256:"))?;
    let good = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| digest.to_owned())
}

fn content(common: &Path, digest: &str) -> Option<PathBuf> {
    let path = common.join("lfs/objects").join(&digest[..2]).join(&digest[2..4]).join(digest);
    path.is_file().then_some(path)
}

fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0)
}
